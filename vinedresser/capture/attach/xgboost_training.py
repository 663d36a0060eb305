"""Detection of XGBoost trainings by the native or the scikit-learn API."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import xgboost.training
from xgboost.callback import CallbackContainer, EarlyStopping

from vinedresser.capture.attach.finder import TrainingFinder
from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.frameworks.methods import listen

# Names of evaluation sets, but not validation_0, which an estimator gives to any set.
_EVALUATION = re.compile(r"(?i)d?(eval|val|test|dev|hold)(?!\w*_\d+$)")


class _XGBoostTrainings(TrainingFinder):
    """Appends a capturing callback to those of every training.

    The first training writes to the launched run, each other one to an additional run. The folds
    of a cross-validation are one training; those of a custom objective are not captured.

    Args:
        attachment: opens and closes the hooks.
    """

    def start(self) -> None:
        """See `Finder.start`."""
        begins = self._attachment.shield.guard("attaching to XGBoost", self._training_begins)
        self._ends = [listen(CallbackContainer, "before_training", begins)]

    def _training_begins(self, callbacks: CallbackContainer) -> None:
        # A cross-validation passes the data of its folds, also those of a custom objective: their
        # loss would be that of another one.
        if callbacks.is_cv and callable(_locals_of_training().get("obj")):
            return
        given = {} if callbacks.is_cv else _data_of_training(callbacks.callbacks)
        callbacks.callbacks.append(self._attach_hook().xgboost(**given))


def _data_of_training(callbacks: Iterable[Any]) -> dict[str, Any]:
    """Return the data of the training that begins, as `Hook.xgboost` takes them.

    Callbacks do not receive the data, so they are read from `xgboost.train`, which calls them. The
    training data among the evaluation sets are its training set; they are evaluated, too, if
    nothing else is and they are said to be an evaluation or decide when to stop.
    """
    given = _locals_of_training()
    train = given.get("dtrain")
    sets = list(given.get("evals") or ())
    own = next((name for data, name in sets if data is train), None)
    if callable(given.get("obj")):
        # Nothing says what the predictions of a custom objective are.
        return {"training_set": own}
    # Other matrices may have the rows of the training, too, and be named so.
    others = {name: data for data, name in sets if data is not train and "train" not in name}
    stops = any(isinstance(one, EarlyStopping) for one in callbacks)
    if own is not None and not others and (stops or _EVALUATION.match(own)):
        others = {own: train}
    return {"train": train, "validation": others or None, "training_set": own}


def _locals_of_training() -> Mapping[str, Any]:
    """Return the local variables of `xgboost.train` or `xgboost.cv`, which calls the callbacks."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") != xgboost.training.__name__:
        frame = frame.f_back
    return frame.f_locals


def attach() -> None:
    """Start looking for trainings."""
    ATTACHMENT.search(_XGBoostTrainings(ATTACHMENT))
