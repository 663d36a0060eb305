"""Result of ``mutmut run`` by file: ``python -m benchmarks.mutants``.

A mutant is caught if a test fails, times out or is killed by a signal. Mutants without any test
count as survivors. The exit code is 1 if less than 90 % of all mutants are caught.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import table

__all__ = ["main"]

_RESULTS = Path("mutants")
_GOAL = 0.9
# mutmut's exit codes of mutants that survived: the tests passed, or none covers the function.
_SURVIVED = (0, 5, 33)


def results() -> Iterator[tuple[str, dict[str, int | None]]]:
    """Yield each mutated file with the exit code of the tests by mutant; None: not run."""
    for path in sorted(_RESULTS.rglob("*.meta")):
        file = str(path.relative_to(_RESULTS)).removesuffix(".meta")
        codes = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
        # mutmut keeps the results of files that were removed.
        if codes and Path(file).exists():
            yield file, codes


def main() -> int:
    """Print caught mutants by file and all survivors; return the exit code."""
    rows: list[tuple[str, int, int, str]] = []
    survivors: list[str] = []
    for file, codes in results():
        ran = {name: code for name, code in codes.items() if code is not None}
        alive = [name for name, code in ran.items() if code in _SURVIVED]
        survivors += alive
        share = f"{1 - len(alive) / len(ran):.0%}" if ran else ""
        rows.append((file, len(ran), len(alive), share))
    mutants = sum(row[1] for row in rows)
    if not mutants:
        print("no results: run `mutmut run` first")
        return 1
    caught = 1 - len(survivors) / mutants
    rows.append(("all", mutants, len(survivors), f"{caught:.1%}"))
    print(table(rows, ("file", "mutants run", "survived", "caught")))
    print("", "survivors, shown by `mutmut show NAME`:", *survivors, sep="\n")
    return 0 if caught >= _GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
