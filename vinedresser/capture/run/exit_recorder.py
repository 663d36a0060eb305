"""Writing the exit record of a run without a supervisor."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from types import TracebackType

from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.objects import Storage
from vinedresser.store.records import ExitCause, ExitRecord, StopRecord, read_record, write_first


class ExitRecorder:
    """Notes how the program ends and writes the exit record.

    Uncaught errors are noted by `sys.excepthook`, which then calls the previous hook. The code of
    ``sys.exit(code)`` is not visible from inside the process: such a run counts as finished.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._error: BaseException | None = None
        self._previous = sys.excepthook
        sys.excepthook = self._uncaught

    def note(self, error: BaseException | None) -> None:
        """Note the error with which the training ends, or None."""
        self._error = error

    def write(self, last_step: int | None) -> None:
        """Write the exit record, unless the run has one.

        Args:
            last_step: last finished optimizer step; None before the first.

        Raises:
            StoreError: the storage failed.
        """
        if sys.excepthook == self._uncaught:
            sys.excepthook = self._previous
        write_first(self._storage, self._record(last_step))

    def _record(self, last_step: int | None) -> ExitRecord:
        now = time.time()
        stop = read_record(self._storage, StopRecord)
        if isinstance(self._error, TrainingStopped) and stop is not None:
            return ExitRecord("stopped", stop.reason, now, code=0, last_step=last_step, stop=stop)
        cause, reason, code = _judge(self._error)
        name = signal.Signals(code - 128).name if cause == "killed" else ""
        return ExitRecord(cause, reason, now, code=code, signal=name, last_step=last_step)

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self.note(error)
        self._previous(kind, error, trace)


def _judge(error: BaseException | None) -> tuple[ExitCause, str, int]:
    """Return cause, reason and exit code of a program that ends with an error or None."""
    match error:
        case TrainingStopped():
            return "killed", "ended by SIGTERM", 128 + signal.SIGTERM
        case KeyboardInterrupt():
            return "killed", "ended by SIGINT", 128 + signal.SIGINT
        case SystemExit(code=int(code)) if code:
            return "crashed", f"exit code {code}", code
        case SystemExit(code=str(reason)):
            return "crashed", reason, 1
        case None | SystemExit():
            return "finished", "the program ended without an error", 0
    return "crashed", traceback.format_exception_only(error)[-1].strip(), 1
