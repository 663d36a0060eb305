"""Storages of a run that has begun."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.writing.records import GatedStorage
from vinedresser.objects import LocalStorage
from vinedresser.testing.runs import start_run


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    start_run(tmp_path)
    return LocalStorage(tmp_path)


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedStorage]:
    start_run(tmp_path)
    storage = GatedStorage(tmp_path)
    yield storage
    storage.gate.set()
