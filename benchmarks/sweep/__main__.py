"""Savings of rules and pruners in sweeps of two spaces: ``python -m benchmarks.sweep``.

Every configuration is trained to its end once, with the default rules' capture, and judged. The
curves are then replayed through the study that decides in `vinedresser sweep`. The best quarter are
the trials with the best last values if none is ended early; of these a table shows how many each
arm finished, and how many of those that the pruner alone finishes it lost.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path
from statistics import median

from benchmarks.measure import table
from benchmarks.sweep.curve import Curve
from benchmarks.sweep.curves import curves
from benchmarks.sweep.replay import Replayed, replay
from benchmarks.sweep.spaces import SPACES

# Wilcoxon's is left out: it compares folds, not epochs.
_PRUNERS = ("none", "median", "asha", "hyperband")


def main() -> None:
    """Train missing configurations, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/sweep-curves"))
    parser.add_argument("--trials", type=int, default=81)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--max-concurrent", type=int, default=4, help="concurrent trials in the replay"
    )
    parser.add_argument("--space", choices=[*SPACES], action="append")
    given = parser.parse_args()
    for space in given.space or SPACES:
        cores = len(os.sched_getaffinity(0))
        sweeps = [
            curves(space, seed, given.trials, given.folder, cores) for seed in range(given.seeds)
        ]
        _print(space, sweeps, given.max_concurrent)


def _print(space: str, sweeps: list[list[Curve]], max_concurrent: int) -> None:
    finals = [curve.accuracies[-1] for sweep in sweeps for curve in sweep]
    good = sum(final >= 0.9 for final in finals)
    sizes = f"{len(sweeps)} sweeps of {len(sweeps[0])} trials"
    print(f"{space}: {sizes}, {good} of {len(finals)} reach 90 %")
    rows = []
    for pruner in _PRUNERS:
        alone, ruled = (
            [
                replay(space, sweep, pruner, rules=rules, max_concurrent=max_concurrent)
                for sweep in sweeps
            ]
            for rules in (False, True)
        )
        rows.append(_row(pruner, alone, alone, sweeps))
        rows.append(_row(f"{pruner} + rules", ruled, alone, sweeps))
    headers = [
        "arm",
        "epochs, %",
        "from - to",
        "best - best of all",
        "finished",
        "pruned",
        "stopped",
    ]
    quarter = ["best quarter finished", "stopped", "lost"]
    print(table(rows, [*headers, *quarter, "wall, s"]))
    stops = Counter(curve.rule for sweep in sweeps for curve in sweep if curve.rule)
    print("stopped by", ", ".join(f"{rule} {count}" for rule, count in stops.most_common()), "\n")


def _row(
    arm: str, replays: list[Replayed], alone: list[Replayed], sweeps: list[list[Curve]]
) -> list[object]:
    shares = [100 * one.epochs for one in replays]
    behind = [
        one.best - max(curve.accuracies[-1] for curve in sweep)
        for one, sweep in zip(replays, sweeps, strict=True)
    ]
    ended = [
        str(sum(one.ended.get(how, 0) for one in replays))
        for how in ("finished", "pruned", "stopped")
    ]
    finished = sum(len(one.finished) for one in replays)
    kept = sum(len(one.finished) for one in alone)
    lost = sum(len(b.finished - a.finished) for a, b in zip(replays, alone, strict=True))
    return [
        arm,
        f"{median(shares):.1f}",
        f"{min(shares):.1f} - {max(shares):.1f}",
        f"{min(behind):+.4f} (worst)",
        *ended,
        f"{finished} of {sum(one.quarter for one in replays)}",
        str(sum(one.wrong for one in replays)),
        f"{lost} of {kept}",
        f"{median(one.seconds for one in replays):.0f}",
    ]


if __name__ == "__main__":
    main()
