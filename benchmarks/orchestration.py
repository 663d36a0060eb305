"""Overhead of a sweep beyond its trainings: `python -m benchmarks.orchestration [--trials N]`.

Each arm is a real `vinedresser sweep` in an empty home: Prefect's server, MLflow, supervised
processes, judges. A trial is a process that reports one value (`benchmarks.noop_trial`), so only
the overhead is measured. From 250 trials, a table shows whether time and memory grow.
"""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.measure import table
from benchmarks.process_tree import Glance, Watch
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, SupervisorRecord, read_record

_SCRIPT = Path(__file__).with_name("noop_trial.py")
_SWEEP = """
[sweep]
metric = "score"
direction = "maximize"
trials = {trials}
epochs = 1
pruner = "none"

[space]
x = {{ float = [0.0, 1.0] }}

[run]
name = "noop"
command = ["python", "{script}"]
max_concurrent = {max_concurrent}
{rules}
"""
_NO_RULES = '[rules]\npreset = "none"'
# If this many trainers start simultaneously in an empty home, none may fail.
_HERD = 16
_GROWTH = (250, 500, 1000, 2000, 4000, 7000, 10_000)


class SweepResult(NamedTuple):
    """A sampled sweep.

    Attributes:
        first: seconds until the first trial's process started.
        ends: end times of the trials, ascending, in seconds since the epoch.
        glances: samples of its processes.
        states: number of MLflow runs by status.
        output: output of the command.
    """

    first: float
    ends: Sequence[float]
    glances: Sequence[Glance]
    states: Counter[str]
    output: str

    def between(self, first: int, last: int) -> tuple[float, dict[str, float], Glance]:
        """Return seconds and CPU seconds by process per trial, and the last sample.

        Args:
            first: number of finished trials at the beginning.
            last: number of finished trials at the end.
        """
        begin, end = self.ends[first - 1], self.ends[last - 1]
        before = next(one for one in self.glances if one.time >= begin)
        after = next((one for one in self.glances if one.time >= end), self.glances[-1])
        trials = last - first
        cpu = {kind: (after.cpu[kind] - before.cpu[kind]) / trials for kind in after.cpu}
        return (end - begin) / trials, cpu, after


def sweep(folder: Path, trials: int, max_concurrent: int, *, rules: bool) -> SweepResult:
    """Run a sweep with its own home and store."""
    folder.mkdir()
    home = folder / "home"
    home.mkdir()
    text = _SWEEP.format(
        trials=trials,
        max_concurrent=max_concurrent,
        script=_SCRIPT,
        rules="" if rules else _NO_RULES,
    )
    (folder / "sweep.toml").write_text(text, encoding="utf-8")
    foreign = ("PREFECT", "MLFLOW", "VINEDRESSER")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    begun = time.time()
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "vinedresser", "sweep", "sweep.toml"],
            cwd=folder,
            env={**clean, "HOME": str(home), "COLUMNS": "200"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        with Watch(process.pid) as watch:
            code = process.wait()
    said = (folder / "output.txt").read_text(encoding="utf-8", errors="replace")
    if code:
        raise SystemExit(f"{said}\nexit code {code}")
    store = folder / "runs" / "noop"
    runs = [LocalStorage(record.parent) for record in store.glob("trial-*/exit.json")]
    exits = [read_record(run, ExitRecord) for run in runs]
    starts = [read_record(run, SupervisorRecord) for run in runs]
    return SweepResult(
        first=min((start.started for start in starts if start), default=float("nan")) - begun,
        ends=sorted(one.ended for one in exits if one),
        glances=watch.glances,
        states=_mlflow_states(folder / "runs" / "mlflow.db"),
        output=said,
    )


def _mlflow_states(database: Path) -> Counter[str]:
    with closing(sqlite3.connect(database)) as connection:
        return Counter(state for (state,) in connection.execute("SELECT status FROM runs"))


def alone(folder: Path, times: int) -> tuple[float, float]:
    """Return the median wall and CPU seconds of a single trial process."""
    walls, cpus = [], []
    for number in range(times):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        where = str(folder / f"alone-{number}")
        subprocess.run([sys.executable, _SCRIPT, "--x", "0.5", "--alone", where], check=True)
        walls.append(time.perf_counter() - begun)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(walls), median(cpus)


def _check(swept: SweepResult, trials: int) -> None:
    """Check that all trials succeeded."""
    wanted = Counter({"FINISHED": trials + 1})
    if len(swept.ends) != trials or swept.states != wanted:
        raise SystemExit(f"{swept.output}\n{len(swept.ends)} ended, in MLflow {swept.states}")


def _row(
    max_concurrent: int, rules: bool, rounds: Sequence[SweepResult], trials: int
) -> list[object]:
    # The first quarter still overlaps with the start-up of the sweep.
    parts = [one.between(max(trials // 4, 1), trials) for one in rounds]
    seconds = [part[0] for part in parts]
    cpu = {kind: median(part[1][kind] for part in parts) for kind in parts[0][1]}
    last = parts[-1][2]
    return [
        f"{max_concurrent} at once, rules {'on' if rules else 'off'}",
        f"{median(seconds):.2f}",
        *(f"{cpu[kind]:.2f}" for kind in ("trainings", "judges", "flow", "server")),
        f"{sum(cpu.values()):.2f}",
        f"{median(one.first for one in rounds):.0f}",
        f"{last.flow_megabytes:.0f}",
        f"{max(one.megabytes for one in rounds[-1].glances):.0f}",
    ]


_HEADERS = (
    *("per trial", "s", "CPU s: trainings", "judges", "flow", "Prefect's server", "all"),
    *("to the first trial, s", "flow, MB", "all, MB"),
)


def _growth(swept: SweepResult, trials: int) -> Iterator[list[object]]:
    """Yield a table row for each part of a long sweep."""
    marks = [max(trials // 100, 10), *(mark for mark in _GROWTH if mark < trials), trials]
    for first, last in pairwise(marks):
        seconds, cpu, glance = swept.between(first, last)
        yield [
            f"{first} - {last}",
            f"{seconds:.3f}",
            *(f"{cpu[kind]:.3f}" for kind in ("trainings", "judges", "flow", "server")),
            f"{glance.flow_megabytes:.0f}",
            f"{glance.megabytes:.0f}",
        ]


_GROWTH_HEADERS = ("trials", *_HEADERS[1:6], "flow, MB", "all, MB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=24, help="of each sweep")
    parser.add_argument("--max-concurrent", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--rules", choices=["on", "off", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=1, help="sweeps per arm, interleaved")
    parser.add_argument("--no-herd", action="store_true", help=f"leave out the {_HERD} at once")
    given = parser.parse_args()
    ways = {"on": [True], "off": [False], "both": [True, False]}[given.rules]
    arms = [(max_concurrent, rules) for max_concurrent in given.max_concurrent for rules in ways]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wall, cpu = alone(folder, 7)
        print(f"the trial's process by itself: {wall:.2f} s, {cpu:.2f} s of CPU\n")
        found: dict[tuple[int, bool], list[SweepResult]] = {arm: [] for arm in arms}
        for turn in range(given.rounds):
            for number, arm in enumerate(arms):
                swept = sweep(folder / f"{turn}-{number}", given.trials, arm[0], rules=arm[1])
                _check(swept, given.trials)
                found[arm].append(swept)
        print(table([_row(*arm, found[arm], given.trials) for arm in arms], _HEADERS))
        if given.trials >= _GROWTH[0]:
            for (max_concurrent, rules), rounds in found.items():
                print(f"\n{max_concurrent} at once, rules {'on' if rules else 'off'}")
                print(table([*_growth(rounds[0], given.trials)], _GROWTH_HEADERS))
        if not given.no_herd:
            swept = sweep(folder / "herd", _HERD, _HERD, rules=True)
            _check(swept, _HERD)
            print(f"\n{_HERD} trainers at once on an empty home: all finished, no error")


if __name__ == "__main__":
    main()
