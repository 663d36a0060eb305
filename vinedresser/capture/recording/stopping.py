"""ExitRecorder a training that was asked to end, between two steps and with its weights saved."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

__all__ = ["StopSignal", "TrainingStopped"]


class TrainingStopped(SystemExit):
    """The training was asked to stop and has saved what it should; its ``finally`` blocks run.

    A SystemExit, so that it ends the program without a traceback. Its code is 0 when a stop record
    says who asked, and 143 (128 + SIGTERM) when nobody did but a signal.
    """


class StopSignal:
    """Takes SIGTERM as a wish to stop after the current step.

    A handler that the user's program had installed before is called too, after ours has noted the
    wish: what it does (note it, save something, exit at once) is its own business. The default
    action, death, is put off to the second SIGTERM. A handler that the program installs
    later replaces ours, and then the program alone decides. In a forked child everything is as it
    was before `install`.

    Attributes:
        requested: a SIGTERM has come.
    """

    def __init__(self) -> None:
        self.requested = False
        self._process = os.getpid()
        self._previous: signal._HANDLER = signal.SIG_DFL
        self._installed = False

    def install(self) -> bool:
        """Take over SIGTERM; return False outside the main thread, where Python cannot."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if not self._installed:
            self._previous = signal.signal(signal.SIGTERM, self._receive) or signal.SIG_DFL
            self._installed = True
        return True

    def restore(self) -> None:
        """Give SIGTERM back to whoever had it, unless somebody else has taken it since."""
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
        elif self.requested:
            self._pass_on(signal.SIG_DFL)
        else:
            self.requested = True
            if callable(self._previous):
                self._previous(number, frame)

    def _pass_on(self, handler: signal._HANDLER) -> None:
        """Let another handler have the signal, as if ours had never been there."""
        signal.signal(signal.SIGTERM, handler)
        os.kill(os.getpid(), signal.SIGTERM)
