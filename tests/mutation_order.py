"""Order of the tests of a mutant, for pytest: ``-p tests.mutation_order``.

mutmut passes the tests in random order and stops at the first failure. Here the files whose tests
take the least time come first, and the tests of a file stay together and share its fixtures.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

__all__ = ["pytest_collection_modifyitems"]

# Written by mutmut before it runs the first mutant, in the directory where it runs tests.
_STATISTICS = Path("mutmut-stats.json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by file, the fastest file first."""
    seconds: Counter[str] = Counter()
    if _STATISTICS.exists():
        durations = json.loads(_STATISTICS.read_text(encoding="utf-8"))["duration_by_test"]
        for test, duration in durations.items():
            seconds[_file(test)] += duration
    items.sort(key=lambda item: (seconds[_file(item.nodeid)], item.location[0], item.location[1]))


def _file(test: str) -> str:
    return test.partition("::")[0]
