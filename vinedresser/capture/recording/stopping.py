"""Stopping a training between two steps."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

__all__ = ["StopSignal", "TrainingStopped"]

# Packages whose handlers leave the end to a hook.
_TRAINERS = ("lightning", "pytorch_lightning", "vinedresser")


class TrainingStopped(SystemExit):
    """The training was asked to stop, and its weights are saved.

    A SystemExit, so the program ends without a traceback and runs its ``finally`` blocks. The exit
    code is 0 if the run has a stop record, else 143 (128 + SIGTERM).
    """


class StopSignal:
    """Handles SIGTERM as a request to stop after the current step.

    A handler installed earlier by the user's program is called as well. Without one, the second
    SIGTERM terminates the process. A handler installed later replaces this one, and may go on
    calling it: once the training is over, it only calls the earlier one. In a forked child, the
    earlier handler applies.

    Attributes:
        requested: a SIGTERM was received.
        patience: seconds that a program with a handler of its own gets to end by itself, with its
            own exit code, before the training is stopped.
    """

    def __init__(self) -> None:
        self.requested = False
        self.patience = 0.0
        self._deadline = 0.0
        self._process = os.getpid()
        self._previous: signal._HANDLER = signal.SIG_DFL
        self._installed = self._over = False

    @property
    def due(self) -> bool:
        """Whether the training is to be stopped now."""
        return self.requested and time.monotonic() >= self._deadline

    def install(self) -> bool:
        """Install the handler; return False outside the main thread, where this is impossible."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if not self._installed:
            self._previous = signal.signal(signal.SIGTERM, self._receive) or signal.SIG_DFL
            self._installed = True
        return True

    def restore(self) -> None:
        """Restore the previous handler, unless another one was installed since."""
        self._over = True
        if (
            self._installed
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == self._receive
        ):
            signal.signal(signal.SIGTERM, self._previous)
            self._installed = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM."""
        if os.getpid() != self._process:
            self._pass_on(self._previous)
        elif self.requested and not self._over:
            self._pass_on(signal.SIG_DFL)
        else:
            self.requested = True
            if _is_of_program(self._previous):
                self._deadline = time.monotonic() + self.patience
            if callable(self._previous):
                self._previous(number, frame)

    def _pass_on(self, handler: signal._HANDLER) -> None:
        """Install another handler and send the signal again."""
        signal.signal(signal.SIGTERM, handler)
        os.kill(os.getpid(), signal.SIGTERM)


def _is_of_program(handler: signal._HANDLER) -> bool:
    """Return whether a handler decides how the user's program ends.

    Those of trainers only note that the training is to end.
    """
    package = str(getattr(handler, "__module__", "")).partition(".")[0]
    return callable(handler) and package not in _TRAINERS
