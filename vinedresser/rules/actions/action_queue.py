"""Actions one after the other, on a thread of their own."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from vinedresser.errors import VinedresserError
from vinedresser.rules.actions.base import Action, ActionContext, ActionResult

__all__ = ["ActionQueue", "run_action"]

_LOG = logging.getLogger(__name__)


class ActionQueue:
    """Takes actions in the order in which they come.

    Args:
        name: of the thread.
        over: called with each action that is over, its context, and what came of it.
    """

    def __init__(
        self, name: str, over: Callable[[Action, ActionContext, ActionResult], None]
    ) -> None:
        self._over = over
        self._jobs: queue.SimpleQueue[tuple[Action, ActionContext] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, action: Action, context: ActionContext) -> None:
        """Have an action taken after all that came before."""
        self._jobs.put((action, context))

    def end(self) -> None:
        """Let the thread end after what has come so far."""
        self._jobs.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for its end; return False when that took too long."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            action, context = job
            result = ActionResult("failed", "the judge gave up before")
            if not context.giving_up.is_set():
                result = run_action(action, context)
            try:
                self._over(action, context, result)
            except VinedresserError as error:
                _LOG.warning("%s: what came of it cannot be stored: %s", action.name, error)


def run_action(action: Action, context: ActionContext) -> ActionResult:
    """Take an action; an error of its own is a failure."""
    try:
        return action.take(context)
    except (VinedresserError, OSError, ValueError) as error:
        return ActionResult("failed", f"{type(error).__name__}: {error}")
