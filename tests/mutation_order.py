"""Order of the tests of a mutant, for pytest: ``-p tests.mutation_order``.

mutmut passes the tests in random order and stops at the first failure. Here the files named for the
mutated module come first, then those of its folder, then the fastest of all others. The tests of a
file stay together and share its fixtures; the fastest one comes first.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

__all__ = ["pytest_collection_modifyitems"]

# Written by mutmut before it runs the first mutant, in the directory where it runs tests.
_STATISTICS = Path("mutmut-stats.json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by file and by duration."""
    durations: dict[str, float] = {}
    if _STATISTICS.exists():
        durations = json.loads(_STATISTICS.read_text(encoding="utf-8"))["duration_by_test"]
    seconds: defaultdict[str, float] = defaultdict(float)
    for test, duration in durations.items():
        seconds[test.partition("::")[0]] += duration
    # Such as "vinedresser.store.index.document.xǁDocumentǁrefuse__mutmut_1".
    module = os.environ.get("MUTANT_UNDER_TEST", "").rpartition(".")[0].split(".")
    folder = "/".join(["tests", *module[1:-1], ""])

    def key(item: pytest.Item) -> tuple[bool, bool, float, str, float]:
        file = item.location[0]
        named = module[-1] != "" and module[-1] in file.rpartition("/")[2]
        test = durations.get(item.nodeid, 0.0)
        return not named, not file.startswith(folder), seconds[file], file, test

    items.sort(key=key)
