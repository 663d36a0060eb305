"""A gradient boosted classifier of XGBoost that is saved and continued."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import xgboost
from sklearn.datasets import load_digits
from xgboost.callback import TrainingCallback

from benchmarks.public.recipes.journal import Journal, steps


class Rounds(TrainingCallback):
    """Times each round."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._journal.step()
        return False


def main() -> None:
    x, y = load_digits(return_X_y=True)
    training = xgboost.DMatrix(x[:1500], y[:1500])
    parameters = {
        "objective": "multi:softprob",
        "num_class": 10,
        "max_depth": 4,
        "eta": 0.1,
        "nthread": 1,
        "seed": 0,
    }
    total, journal = steps(100), Journal()
    rounds = Rounds(journal)
    first = xgboost.train(parameters, training, total // 2, callbacks=[rounds], verbose_eval=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ubj")
        first.save_model(path)
        model = xgboost.train(
            parameters,
            training,
            total - total // 2,
            xgb_model=path,
            callbacks=[rounds],
            verbose_eval=False,
        )
    journal.finish([bytes(model.save_raw())])


if __name__ == "__main__":
    main()
