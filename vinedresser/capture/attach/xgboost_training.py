"""Detection of XGBoost trainings by the native or the scikit-learn API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xgboost.callback import CallbackContainer

from vinedresser.capture.attach.attaching import attach_hook
from vinedresser.capture.attach.fetching import listen
from vinedresser.capture.run.attachment import ATTACHMENT, Attachment

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook

__all__ = ["XGBoostTrainings", "attach"]


class XGBoostTrainings:
    """Appends a capturing callback to those of every training.

    The first training writes to the launched run, each other one to an additional run.
    ``xgboost.cv`` is not captured.

    Args:
        attachment: opens and closes the hooks.
    """

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._hook: AttachedHook | None = None
        self._end: Callable[[], None] | None = None

    def start(self) -> None:
        """See `Finder.start`."""
        begins = self._attachment.shield.guard("attaching to XGBoost", self._training_begins)
        self._end = listen(CallbackContainer, "before_training", begins)

    def end(self) -> None:
        """See `Finder.end`."""
        end, self._end = self._end, None
        self._hook = None
        if end is not None:
            end()

    def _training_begins(self, callbacks: CallbackContainer) -> None:
        if not callbacks.is_cv:
            self._hook = attach_hook(self._attachment, self._hook)
            callbacks.callbacks.append(self._hook.xgboost())


def attach() -> None:
    """Start looking for trainings."""
    ATTACHMENT.search(XGBoostTrainings(ATTACHMENT))
