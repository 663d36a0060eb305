"""A queue that takes actions in a separate thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from vinedresser.errors import VinedresserError
from vinedresser.plain_logs import plain_logger
from vinedresser.rules.actions.base import Action, ActionContext, ActionResult

__all__ = ["ActionQueue", "await_queues"]

_LOG = plain_logger(__name__)
# Seconds for actions to complete, and then to give up.
_LAST_CALL, _END = 60.0, 15.0


class ActionQueue:
    """Takes actions in order, in a separate thread.

    Args:
        over: called with each action that has ended, its context and its result.
    """

    def __init__(
        self, name: str, over: Callable[[Action, ActionContext, ActionResult], None]
    ) -> None:
        self._over = over
        self._jobs: queue.SimpleQueue[tuple[Action, ActionContext] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, action: Action, context: ActionContext) -> None:
        """Queue an action."""
        self._jobs.put((action, context))

    def end(self) -> None:
        """Let the thread end after the actions queued so far."""
        self._jobs.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; return False after a timeout in seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            action, context = job
            result = ActionResult("failed", "the judge gave up before it was taken")
            if not context.giving_up.is_set():
                result = _run_action(action, context)
            try:
                self._over(action, context, result)
            except VinedresserError as error:
                _LOG.warning("%s: cannot store the result: %s", action.name, error)


def await_queues(queues: Sequence[ActionQueue], giving_up: threading.Event) -> bool:
    """Wait a minute for the actions of queues that were ended; then give them up.

    Returns:
        Whether all have ended.
    """
    end = time.monotonic() + _LAST_CALL
    for patience in (end, end + _END):
        ended = [queue.join(max(patience - time.monotonic(), 0.0)) for queue in queues]
        if all(ended):
            return True
        giving_up.set()
    return False


def _run_action(action: Action, context: ActionContext) -> ActionResult:
    """Take an action; an error is returned as a failure."""
    try:
        return action.take(context)
    except (VinedresserError, OSError, ValueError) as error:
        return ActionResult("failed", f"{type(error).__name__}: {error}")
