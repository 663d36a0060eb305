"""Detection of XGBoost trainings by the native or the scikit-learn API."""

from __future__ import annotations

import sys

import xgboost.training
from xgboost.callback import CallbackContainer

from vinedresser.capture.attach.finder import TrainingFinder
from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.frameworks.methods import listen


class _XGBoostTrainings(TrainingFinder):
    """Appends a capturing callback to those of every training.

    The first training writes to the launched run, each other one to an additional run.
    ``xgboost.cv`` is not captured.

    Args:
        attachment: opens and closes the hooks.
    """

    def start(self) -> None:
        """See `Finder.start`."""
        begins = self._attachment.shield.guard("attaching to XGBoost", self._training_begins)
        self._ends = [listen(CallbackContainer, "before_training", begins)]

    def _training_begins(self, callbacks: CallbackContainer) -> None:
        if not callbacks.is_cv:
            hook = self._attach_hook()
            callbacks.callbacks.append(hook.xgboost(training_set=_training_set()))


def _training_set() -> str | None:
    """Return the name of the evaluation set that is the training data itself, if any.

    Callbacks do not receive the data, so it is read from `xgboost.train`, which calls them.
    """
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__") != xgboost.training.__name__:
        frame = frame.f_back
    given = frame.f_locals
    sets = given.get("evals") or ()
    return next((name for data, name in sets if data is given.get("dtrain")), None)


def attach() -> None:
    """Start looking for trainings."""
    ATTACHMENT.search(_XGBoostTrainings(ATTACHMENT))
