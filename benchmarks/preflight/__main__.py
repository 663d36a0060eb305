"""Share of faulty trainings that a pre-flight check finds: ``python -m benchmarks.preflight``.

Each training of `benchmarks.faults` runs in a process of its own, on one thread, and is watched,
checked and ended as by ``vinedresser check``. Found: any suspicious check. Blamed: any suspicious
check of a healthy training. By the hash of its pair, a case belongs to the half for development, or
to the sealed one (``--sealed``), which is for a final measurement: never adjust a check to it.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.faults.cases import Case, load_cases
from benchmarks.faults.processes import in_processes
from benchmarks.measure import table
from benchmarks.preflight.checking import Checked, check_case
from vinedresser.preflight.verdict import SUSPICIOUS, UNCHECKED

__all__ = ["main"]

FAULTS = Path(__file__).parents[1] / "faults"
# Goals: share found, share of the healthy ones blamed, CPU seconds.
_GOALS = (0.6, 0.02, 20.0)


def is_sealed(case: Case) -> bool:
    """Return whether a case belongs to the sealed half."""
    pair = case.id.removesuffix("-F").removesuffix("-H")
    return hashlib.sha256(pair.encode()).digest()[0] % 2 == 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Check all cases and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sealed", action="store_true", help="check the sealed half")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these cases")
    parser.add_argument("--jobs", type=int, default=2, help="concurrent processes (default: 2)")
    parser.add_argument("--verbose", action="store_true", help="print the suspicions of each case")
    given = parser.parse_args(arguments)
    cases = [
        case
        for name in ("cases.yaml", "more_cases.yaml")
        for case in load_cases(FAULTS / name)
        if is_sealed(case) == given.sealed and (not given.only or case.id in given.only)
    ]
    results: list[tuple[Case, Checked]] = []
    preload = ["benchmarks.preflight.checking"]
    for case, future in in_processes(check_case, cases, given.jobs, preload=preload):
        try:
            results.append((case, future.result()))
        except (RuntimeError, ValueError) as error:
            print(f"{case.id}: {error}", file=sys.stderr)
        print(f"{len(results)} of {len(cases)}  {case.id}", file=sys.stderr, flush=True)
    _report(results, verbose=given.verbose)


def _report(results: list[tuple[Case, Checked]], *, verbose: bool) -> None:
    by_class: dict[str, list[tuple[Case, Checked]]] = {}
    for case, found in sorted(results, key=lambda result: result[0].id):
        by_class.setdefault(case.fault_class if case.faulty else "healthy", []).append(
            (case, found)
        )
        if verbose:
            bad = [verdict for verdict in found.verdicts if verdict.state == SUSPICIOUS]
            said = "; ".join(f"{one.check}: {one.evidence}" for one in bad) or "-"
            print(f"{case.id} ({case.fault_class}): {said}")
    rows = []
    for name, cases in sorted(by_class.items()):
        checks = sorted({check for _, each in cases for check in each.suspicions})
        number = sum(bool(each.suspicions) for _, each in cases)
        rows.append((name, str(len(cases)), str(number), ", ".join(checks)))
    print(table(rows, ("class", "cases", "suspicious", "checks")))
    faulty = [found for case, found in results if case.faulty]
    healthy = [found for case, found in results if not case.faulty]
    print()
    for word, those, goal in (("found", faulty, _GOALS[0]), ("blamed", healthy, _GOALS[1])):
        number = sum(bool(each.suspicions) for each in those)
        share = number / max(1, len(those))
        print(f"{word}: {number} of {len(those)} ({share:.0%}, goal {goal:.0%})")
    states = [verdict for _, found in results for verdict in found.verdicts]
    unchecked = sum(state.state == UNCHECKED for state in states)
    print(f"could not be checked: {unchecked} of {len(states)} verdicts")
    print(f"CPU seconds: at most {max(one.seconds for _, one in results):.1f}, goal {_GOALS[2]:g}")


if __name__ == "__main__":
    main()
