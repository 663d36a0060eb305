"""Overhead of a hook in an XGBoost training: ``python -m benchmarks.xgboost_overhead``.

All arms train in one process, one whole training each in turn, so that load on the machine affects
all arms equally. A ratio is the median over the turns of an arm's time to the plain arm's in the
same turn; "plain again" shows the random error of such a ratio. The CPU ratio covers the training
thread only; "late" is the CPU ratio of the last quarter of the rounds, which would reveal costs
that grow with the model.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import xgboost
from sklearn.datasets import make_classification
from xgboost.callback import TrainingCallback

from benchmarks.measure import interleave, table
from vinedresser.capture import Hook, SaveConfig

__all__ = ["main"]

_NEVER = {name: SaveConfig(every=0) for name in ("losses", "metrics", "saved")}

Collections = dict[str, SaveConfig]

# Captured collections by arm; None for no hook.
ARMS: dict[str, Collections | None] = {
    "plain": None,
    "plain again": None,
    "hook idle": _NEVER,
    "losses and metrics": {},
    "importance every 10": {"feature_importance": SaveConfig(every=10)},
    "trees every round": {"trees": SaveConfig(every=1)},
    "predictions every 10": {"predictions": SaveConfig(every=10)},
    "all but shap every 10": {
        name: SaveConfig(every=10)
        for name in ("feature_importance", "trees", "predictions", "labels")
    },
    "shap every 10": {"shap": SaveConfig(every=10)},
    "shap every 100": {"shap": SaveConfig(every=100)},
}
# Budgets as ratios to plain.
BUDGETS = {"hook idle": 1.02, "losses and metrics": 1.02, "all but shap every 10": 1.06}


class Clock(TrainingCallback):
    """Records the thread's CPU time at the end of each round, in every arm."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002
        """Record the time."""
        self.times.append(time.thread_time())
        return False


class Arm:
    """One kind of training, repeated.

    Args:
        collections: collections that the hook captures; None for no hook.
        data: training and evaluation data.
        rounds: rounds of boosting.
        folder: folder of the runs.
    """

    def __init__(
        self,
        collections: Collections | None,
        data: tuple[xgboost.DMatrix, xgboost.DMatrix],
        rounds: int,
        folder: Path,
    ) -> None:
        self.collections = collections
        self.data = data
        self.rounds = rounds
        self.folder = folder
        # CPU seconds of each training, and of the last quarter of its rounds.
        self.cpu: list[float] = []
        self.late: list[float] = []

    def run(self) -> float:
        """Train once; return the duration in seconds."""
        train, valid = self.data
        clock, hook = Clock(), None
        callbacks: list[TrainingCallback] = [clock]
        if self.collections is not None:
            hook = Hook(self.folder, collections=self.collections)
            callbacks.insert(0, hook.xgboost(train=train, validation=valid))
        start, cpu = time.perf_counter(), time.thread_time()
        xgboost.train(
            {"objective": "binary:logistic", "max_depth": 6, "nthread": 1},
            train,
            self.rounds,
            evals=[(train, "train"), (valid, "valid")],
            callbacks=callbacks,
            verbose_eval=False,
        )
        taken = time.perf_counter() - start
        self.cpu.append(time.thread_time() - cpu)
        self.late.append(clock.times[-1] - clock.times[-1 - self.rounds // 4])
        if hook is not None:
            hook.close()
            shutil.rmtree(self.folder)
        return taken


def report(arms: dict[str, Arm], results: dict[str, list[float]]) -> str:
    """Return the table of all arms."""

    def ratio(values: list[float], plain: list[float]) -> float:
        return median(one / base for one, base in zip(values, plain, strict=True))

    rows = []
    for name, arm in arms.items():
        each = median(results[name]) / arm.rounds
        # The first training is a warm-up.
        plain = arms["plain"]
        cpu, late = ratio(arm.cpu[1:], plain.cpu[1:]), ratio(arm.late[1:], plain.late[1:])
        budget = BUDGETS.get(name)
        rows.append(
            (
                name,
                f"{each * 1e3:.3f}",
                f"{ratio(results[name], results['plain']):.3f}",
                f"{cpu:.3f}",
                f"{late:.3f}",
                "" if budget is None else f"<= {budget}",
            )
        )
    return table(rows, ("arm", "ms per round", "ratio", "CPU ratio", "late", "budget"))


def main() -> None:
    """Run the arms and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="number of training rows")
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--boosting", type=int, default=200, help="rounds of boosting")
    parser.add_argument("--rounds", type=int, default=8, help="trainings per arm")
    options = parser.parse_args()
    x, y = make_classification(
        options.rows * 5 // 4, options.features, n_informative=options.features // 2, random_state=0
    )
    train = xgboost.DMatrix(x[: options.rows], y[: options.rows])
    valid = xgboost.DMatrix(x[options.rows :], y[options.rows :])
    folder = Path(tempfile.mkdtemp(prefix="xgboost-overhead-"))
    try:
        arms = {
            name: Arm(collections, (train, valid), options.boosting, folder / str(number))
            for number, (name, collections) in enumerate(ARMS.items())
        }
        runs: dict[str, Callable[[], float]] = {name: arm.run for name, arm in arms.items()}
        results = interleave(runs, options.rounds)
        print(
            f"{options.rows} x {options.features}, depth 6, {options.boosting} rounds of boosting "
            f"on one thread, {options.rounds} trainings per arm"
        )
        print(report(arms, results))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
