"""Detection of XGBoost trainings by the native or the scikit-learn API."""

from __future__ import annotations

from xgboost.callback import CallbackContainer

from vinedresser.capture.attach.fetching import listen
from vinedresser.capture.attach.finder import TrainingFinder
from vinedresser.capture.run.attachment import ATTACHMENT


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
            callbacks.callbacks.append(self._attach_hook().xgboost())


def attach() -> None:
    """Start looking for trainings."""
    ATTACHMENT.search(_XGBoostTrainings(ATTACHMENT))
