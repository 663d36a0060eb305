"""One rank of a run: its process, its output and its end."""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable

from vinedresser.infra.supervise.supervisor.crash_reason import CrashReason
from vinedresser.infra.supervise.supervisor.output_pump import Outlet, OutputPump
from vinedresser.infra.supervise.supervisor.trainer import Trainer

# Seconds from the error of a process to its end; an earlier error was not that by which it ended.
_LONGEST_END = 10.0


class Rank:
    """One rank of a run: its process, its output and its end.

    Args:
        deliver: receives the lines of its output.
        outlets: where its standard output and error are shown.
        selector: calls the key's data when ready.

    Attributes:
        complaint: what its standard error says about a failure.
        running: whether it has not ended.
        cut_off: whether it was killed while it ended because of an error.
        lost: "", since its end is known; see `RankElsewhere`.
    """

    lost = ""

    def __init__(
        self,
        number: int,
        trainer: Trainer,
        deliver: Callable[[list[str]], None],
        outlets: tuple[Outlet, Outlet],
        selector: selectors.BaseSelector,
    ) -> None:
        self.number = number
        self.trainer = trainer
        self.complaint = CrashReason()
        self.running = True
        self.cut_off = False
        # When its standard error told of the error, and when it ended; of the monotonic clock.
        self._told = self._ended = float("inf")
        self._selector = selector
        self.pumps = (
            OutputPump(selector, trainer.outputs[0], deliver, outlets[0]),
            OutputPump(selector, trainer.outputs[1], self._hearing(deliver), outlets[1]),
        )
        selector.register(trainer.ended, selectors.EVENT_READ, self._end)

    def _hearing(self, deliver: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
        """Return a function that delivers lines and notes what they say about a failure."""

        def hear(lines: list[str]) -> None:
            deliver(lines)
            before = self.complaint.error
            self.complaint.feed(lines)
            if self.complaint.error != before:
                self._told = time.monotonic()

        return hear

    def _end(self) -> None:
        self.running = False
        self._ended = time.monotonic()
        self._selector.unregister(self.trainer.ended)

    @property
    def failed(self) -> bool:
        """Whether it has ended in another way than with exit code 0."""
        return not self.running and self.trainer.exit_code() != 0

    @property
    def failed_at(self) -> float:
        """When it failed, by the monotonic clock: its interpreter may need seconds to end."""
        told = self._told if self._told > self._ended - _LONGEST_END else self._ended
        return min(told, self._ended)

    @property
    def ends(self) -> bool:
        """Whether it runs and has just told of the error by which it seems to end."""
        return self.running and 0 <= time.monotonic() - self._told < _LONGEST_END

    @property
    def said(self) -> str:
        """The last line that its standard error says about a failure."""
        return self.complaint.text

    @property
    def code(self) -> int:
        """Its exit code, or the negative signal number; call it after its end."""
        code = self.trainer.exit_code()
        # The one that Python would have ended with, had it not been too slow.
        return 1 if self.cut_off and code == -signal.SIGKILL else code
