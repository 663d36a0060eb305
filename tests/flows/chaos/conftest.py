"""Reporting of accidents."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Return what prints a line at once."""

    def line(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)  # noqa: T201 (it is what `make chaos` shows)

    return line
