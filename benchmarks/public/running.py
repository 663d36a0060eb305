"""Recipes in processes of their own, alone and watched, and what vinedresser saw of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import benchmarks
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.step_record import Mode

__all__ = ["Printed", "Seen", "train", "what_was_seen"]

# Exit code of `vinedresser run` if a rule stopped the training.
_STOPPED = 3
_ROOT = Path(benchmarks.__file__).parent.parent


@dataclass(frozen=True)
class Printed:
    """What a recipe printed.

    Attributes:
        losses: losses of the steps, by name.
        evaluations: losses of the evaluations.
        digest: digest of the final weights.
        wall: seconds per step.
        cpu: CPU seconds of the process per step.
        usual: median of the CPU seconds of the steps.
    """

    losses: dict[str, list[float]]
    evaluations: list[float]
    digest: str
    wall: float
    cpu: float
    usual: float

    def same(self, other: Printed) -> bool:
        """Return whether another training computed the same, bit for bit."""
        mine = (self.losses, self.evaluations, self.digest)
        return mine == (other.losses, other.evaluations, other.digest)


@dataclass(frozen=True)
class Seen:
    """What was captured and found.

    Attributes:
        losses: share of the printed losses that were captured; None if none was printed.
        evaluations: same for the losses of the evaluations.
        labels: number of steps with labels.
        findings: findings of all trainings, the most severe first.
    """

    losses: float | None
    evaluations: float | None
    labels: int
    findings: list[Finding]


def train(name: str, folder: Path, *, steps: int | None = None, watched: bool) -> Printed | None:
    """Run a recipe.

    Args:
        name: module of the recipe.
        folder: working directory; the runs are in ``runs/`` there.
        steps: number of steps; None for the recipe's default.
        watched: whether to run it by ``vinedresser run`` and judge it by all default rules.

    Returns:
        What it printed; None if a rule stopped it.

    Raises:
        RuntimeError: the recipe failed.
    """
    launcher = ("-m", "vinedresser", "run", "--preset", "default", "--name", "run")
    script = ("-m", f"benchmarks.public.recipes.{name}", *([] if steps is None else [str(steps)]))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, *(launcher if watched else ()), *script],
        cwd=folder,
        env={**os.environ, **threads, "PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    if watched and done.returncode == _STOPPED:
        return None
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return Printed(**json.loads(done.stdout.splitlines()[-1]))


def what_was_seen(store: Path, printed: Printed | None) -> Seen:
    """Return what the runs of a recipe contain.

    Args:
        store: directory of the runs.
        printed: what the recipe printed; None if a rule stopped it.
    """
    runs = [open_run(path) for path in sorted(store.glob("run*")) if (path / "run.json").exists()]
    order = ("stop", "warning", "info")
    found = sorted(
        (finding for run in runs for finding in run.findings()),
        key=lambda finding: order.index(finding.severity),
    )
    return Seen(
        None if printed is None else _share([*printed.losses.values()], runs, "train"),
        None if printed is None else _share([printed.evaluations], runs, "eval"),
        sum(_labelled(run) for run in runs),
        found,
    )


def _share(printed: Sequence[Sequence[float]], runs: Sequence[Run], mode: Mode) -> float | None:
    """Return the share of printed values that a captured loss has, each series in one loss."""
    count = sum(map(len, printed))
    if not count:
        return None
    captured = [
        np.asarray(column.values, np.float64)
        for run in runs
        for column in run.scalars("losses", mode=mode).values()
    ]
    found = (max((_found(series, one) for one in captured), default=0) for series in printed)
    return sum(found) / count


def _found(series: Sequence[float], captured: NDArray[np.float64]) -> int:
    """Return the number of values of a series that are among captured ones, up to rounding."""
    near = np.isclose(np.asarray(series)[:, None], captured[None], rtol=1e-5, atol=1e-7)
    return int(near.any(1).sum())


def _labelled(run: Run) -> int:
    """Return the number of steps of a run with labels."""
    names = run.tensor_names(collection="labels")
    return len({step for name in names for step in run.tensor(name).steps().tolist()})
