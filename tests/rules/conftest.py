"""Fixtures of the rules' tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.rules.runs import RunStore


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """Return the runs that tests share, those of other workers included."""
    base = tmp_path_factory.getbasetemp()
    # A worker's folder lies in that of the session.
    folder = Path(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base, "shared-runs")
    folder.mkdir(exist_ok=True)
    return RunStore(folder)
