"""What the detections of trainings have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from vinedresser.capture.attach.tracebacks import Entry, PlainTracebacks
from vinedresser.capture.run.attachment import Attachment

if TYPE_CHECKING:
    from vinedresser.capture.attach.attached_hook import AttachedHook


class TrainingFinder:
    """A `Finder` with the hook of the latest training that was found.

    Args:
        attachment: opens and closes the hooks.
        clean: removes the frames caused by vinedresser from the entries of a traceback; None if
            there are none.
    """

    def __init__(
        self,
        attachment: Attachment,
        clean: Callable[[list[Entry]], Iterable[Entry]] | None = None,
    ) -> None:
        self._attachment = attachment
        self._clean = clean
        self._hook: AttachedHook | None = None
        self._ends: list[Callable[[], None]] = []
        self._tracebacks: PlainTracebacks | None = None

    def end(self) -> None:
        """See `Finder.end`."""
        while self._ends:
            self._ends.pop()()
        if self._tracebacks is not None:
            self._tracebacks.remove()
        self._hook = self._tracebacks = None

    def _attach_hook(self) -> AttachedHook:
        """Return the hook of a training that begins; see `Attachment.begin`."""
        # A process that trains nothing does not need the hook's imports.
        from vinedresser.capture.attach.printed_metrics import next_hook

        self._hook = self._attachment.begin(next_hook, self._hook)
        if self._tracebacks is None and self._clean is not None:
            self._tracebacks = PlainTracebacks(self._attachment.shield, self._clean)
        return self._hook
