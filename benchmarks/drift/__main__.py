"""False alarms and delays of drift monitors, beside what else is used to find drift.

Without drift: the share of monitors that ever raise an alarm, which has to stay within the budget.
With drift: the share that raise an alarm before it, the share that find it, and the median number
of windows until then. The sealed worlds (`--sealed`) were written down before anything was tuned.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from benchmarks.drift.images import IMAGE_DRIFTS, IMAGE_NULL
from benchmarks.drift.lives import NEVER, PEERS, Scale, first_alarms
from benchmarks.drift.sealed import SEALED_DRIFTS, SEALED_NULLS
from benchmarks.drift.worlds import COLUMNS, DRIFTS, NULLS
from benchmarks.measure import table
from vinedresser.drift import Baseline, DriftMonitor

BUDGET = 0.01
NAMES = ["vinedresser", *PEERS]
PARTS = {
    "nulls": [*NULLS, IMAGE_NULL],
    "drifts": [*DRIFTS, *IMAGE_DRIFTS],
    "sealed nulls": SEALED_NULLS,
    "sealed drifts": SEALED_DRIFTS,
}


def without_drift(alarms: dict[str, NDArray[np.int64]]) -> list[str]:
    """Return the share of lives with an alarm and its 95 % confidence interval, by detector."""
    cells = []
    for name in NAMES:
        found = alarms.get(name)
        if found is None or len(found) == 0:
            cells.append("all refused" if name == "vinedresser" else "not installed")
            continue
        count = int((found < NEVER).sum())
        interval = binomtest(count, len(found)).proportion_ci(method="exact")
        cells.append(f"{count} of {len(found)} [{interval.low:.3f}, {interval.high:.3f}]")
    return cells


def with_drift(alarms: dict[str, NDArray[np.int64]], change: int) -> list[str]:
    """Return false alarms, share found and median delay in windows, by detector."""
    cells = []
    for name in NAMES:
        found = alarms.get(name)
        if found is None or len(found) == 0:
            cells.append("all refused" if name == "vinedresser" else "not installed")
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


def work(part: str, index: int, scale: Scale) -> dict[str, NDArray[np.int64]]:
    """Return the first alarms in a world. Worlds have functions, which do not cross processes."""
    return first_alarms(PARTS[part][index], scale, BUDGET, index)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and short lives, in a minute")
    parser.add_argument("--sealed", action="store_true", help="the sealed worlds only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    # The sealed worlds are many, so each has fewer lives.
    null = Scale(monitors=200 if arguments.sealed else 500, peers=40, windows=200, change=200)
    drift = Scale(monitors=60, peers=40, windows=120, change=20)
    if arguments.quick:
        null = Scale(monitors=20, peers=4, windows=40, change=40)
        drift = Scale(monitors=8, peers=4, windows=40, change=10)
    prefix = "sealed " if arguments.sealed else ""
    print(f"monitor: {cost():.1f} ms of CPU per window of 200 rows and {COLUMNS} columns (20.0)\n")
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for kind, scale in (("nulls", null), ("drifts", drift)):
            part = prefix + kind
            worlds = PARTS[part]
            title = "without drift" if kind == "nulls" else f"drift at window {scale.change}"
            print(
                f"{prefix}{title}: {scale.monitors} monitors ({scale.peers} lives of peers), "
                f"{scale.windows} windows, {COLUMNS} columns, budget {BUDGET}"
            )
            results = pool.map(
                work, [part] * len(worlds), range(len(worlds)), [scale] * len(worlds)
            )
            rows = []
            for world, alarms in zip(worlds, results, strict=True):
                cells = (
                    without_drift(alarms) if kind == "nulls" else with_drift(alarms, scale.change)
                )
                rows.append([world.name, *cells])
                print(f"  {world.name}: {cells[0]}", flush=True)
            print(table(rows, ["world", *NAMES]), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
