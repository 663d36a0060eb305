"""False alarms and delays of drift monitors, beside what else is used to find drift.

Without drift: the share of monitors that ever raise an alarm, which has to stay within the budget.
With drift: the share that raise an alarm before it, the share that find it, and the median number
of windows until then, with the window in which it begins; for shifts of several sizes that begin
early and late in a life, and inside a window, too (`--onsets`: these only). The sealed worlds
(`--sealed`) were written down before anything was tuned.
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from benchmarks.drift.images import IMAGE_DRIFTS, IMAGE_NULL
from benchmarks.drift.lives import NEVER, PEERS, Scale, first_alarms
from benchmarks.drift.results import Alarms, Job, finished, jobs_of, merged
from benchmarks.drift.sealed import SEALED_DRIFTS, SEALED_NULLS
from benchmarks.drift.worlds import COLUMNS, DRIFTS, NULLS, World, shift
from benchmarks.measure import table
from vinedresser.drift import Baseline, DriftMonitor

BUDGET = 0.01
NAMES = ["vinedresser", *PEERS]
# Windows before a shift of 5 of the columns, and its standard deviations.
ONSETS = [0, 0.5, 1, 2, 5, 5.5, 20, 100]
SIZES = [0.25, 0.5, 1.0, 3.0, 10.0]
PARTS = {
    "nulls": [*NULLS, IMAGE_NULL],
    "drifts": [*DRIFTS, *IMAGE_DRIFTS],
    "sealed nulls": SEALED_NULLS,
    "sealed drifts": SEALED_DRIFTS,
    "onsets": [
        World(f"{size} sd after {onset} windows", drifted=shift(size))
        for onset in ONSETS
        for size in SIZES
    ],
}


def without_drift(alarms: Alarms) -> list[str]:
    """Return the share of lives with an alarm and its 95 % confidence interval, by detector."""
    cells = []
    for name in NAMES:
        found = alarms.get(name)
        if found is None or len(found) == 0:
            refused = found is not None and name == "vinedresser"
            cells.append("all refused" if refused else "not run")
            continue
        count = int((found < NEVER).sum())
        interval = binomtest(count, len(found)).proportion_ci(method="exact")
        cells.append(f"{count} of {len(found)} [{interval.low:.3f}, {interval.high:.3f}]")
    return cells


def with_drift(alarms: Alarms, begins: float) -> list[str]:
    """Return false alarms, share found and median delay in windows, by detector."""
    cells, change = [], int(begins)
    for name in NAMES:
        found = alarms.get(name)
        if found is None or len(found) == 0:
            refused = found is not None and name == "vinedresser"
            cells.append("all refused" if refused else "not run")
            continue
        late = found[found >= change]
        delays = [int(one) - change + 1 for one in late if one < NEVER]
        early = (found < change).mean()
        if early == 1:
            cells.append("false alarm 1.00")
            continue
        delay = median(delays) if delays else "-"
        cells.append(f"false {early:.2f}, found {len(delays) / len(late):.2f} after {delay}")
    return cells


def work(job: Job) -> Alarms:
    """Return the first alarms in a world. Worlds have functions, which do not cross processes."""
    world = next(one for one in PARTS[job.part] if one.name == job.world)
    return first_alarms(world, job.scale, BUDGET, [zlib.crc32(world.name.encode()), job.number])


def print_table(
    part: str, worlds: Sequence[tuple[str, Scale]], file: Path | None, processes: int
) -> None:
    """Print the figures of worlds, and of each while more lives of it end.

    Args:
        part: list of worlds.
        worlds: names of some of them, each with the scale of its lives.
        file: see `finished`.
        processes: see `finished`.
    """
    done = []
    for job, alarms in finished(jobs_of(part, worlds), work, file, processes):
        done.append((job, alarms))
        count = len(alarms["vinedresser"])
        print(f"  {job.world}: {count} more lives", flush=True)
    found, rows = merged(done), []
    for name, scale in worlds:
        alarms = found.get(name, {})
        null = scale.change >= scale.windows
        cells = without_drift(alarms) if null else with_drift(alarms, scale.change)
        rows.append([name, *cells])
    print(table(rows, ["world", *NAMES]), end="\n\n", flush=True)


def cost() -> float:
    """Return the CPU time of a monitor per window of 200 rows and 20 columns, in milliseconds."""
    random = np.random.default_rng(0)

    def rows(count: int) -> dict[str, NDArray[np.float64]]:
        return {f"x{column}": random.normal(size=count) for column in range(COLUMNS)}

    monitor = DriftMonitor(Baseline.of(rows(1000)))
    times = []
    for _ in range(60):
        window = rows(200)
        start = time.process_time()
        monitor.update(window)
        times.append(time.process_time() - start)
    return 1000 * median(times[20:])


def scales(arguments: argparse.Namespace) -> list[Scale]:
    """Return how much is simulated without drift, with drift, and with early and late drift."""
    # The sealed worlds are many, so each has fewer lives.
    null = Scale(monitors=200 if arguments.sealed else 500, peers=40, windows=200, change=200)
    drift = Scale(monitors=60, peers=40, windows=120, change=20)
    if arguments.quick:
        null = Scale(monitors=20, peers=4, windows=40, change=40)
        drift = Scale(monitors=8, peers=4, windows=40, change=10)
    monitors = 4 if arguments.quick else 20
    onsets = Scale(monitors, min(monitors, 8), 0, 0)
    found = [null, drift, onsets]
    if arguments.lives is not None:
        lives = arguments.lives
        found = [replace(one, monitors=lives, peers=min(one.peers, lives)) for one in found]
    if arguments.peers is not None:
        found = [replace(one, peers=arguments.peers) for one in found]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short lives, in a minute")
    parser.add_argument("--sealed", action="store_true", help="the sealed worlds only")
    parser.add_argument("--onsets", action="store_true", help="early and late shifts only")
    parser.add_argument("--lives", type=int, help="number of lives of monitors in each world")
    parser.add_argument("--peers", type=int, help="number of lives of each peer in each world")
    parser.add_argument("--worlds", default="", help="those whose name contains this only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="0: run no more")
    parser.add_argument("--file", type=Path, help="keep the lives here, and run none of it again")
    arguments = parser.parse_args()
    null, drift, onsets = scales(arguments)
    prefix = "sealed " if arguments.sealed else ""
    print(f"monitor: {cost():.1f} ms of CPU per window of 200 rows and {COLUMNS} columns (20.0)\n")
    if not arguments.sealed and not arguments.worlds:
        early = [
            (world.name, replace(onsets, windows=int(onset) + 30, change=onset))
            for world, onset in zip(
                PARTS["onsets"], (one for one in ONSETS for _ in SIZES), strict=True
            )
        ]
        print(f"{onsets.monitors} monitors, 30 windows from the onset on")
        print_table("onsets", early, arguments.file, arguments.jobs)
    if arguments.onsets:
        return
    for kind, scale in (("nulls", null), ("drifts", drift)):
        title = "without drift" if kind == "nulls" else f"drift at window {scale.change}"
        print(
            f"{prefix}{title}: {scale.monitors} monitors ({scale.peers} lives of peers), "
            f"{scale.windows} windows, {COLUMNS} columns, budget {BUDGET}"
        )
        part = prefix + kind
        names = [one.name for one in PARTS[part] if arguments.worlds in one.name]
        print_table(part, [(name, scale) for name in names], arguments.file, arguments.jobs)


if __name__ == "__main__":
    main()
