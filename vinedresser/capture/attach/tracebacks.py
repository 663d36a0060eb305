"""Tracebacks of uncaught errors without the frames of vinedresser."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import NamedTuple

from vinedresser.capture.shield import Shield

__all__ = ["Entry", "PlainTracebacks", "is_capture_frame", "without_capture_frames"]

_OURS = ("vinedresser.capture.", "vinedresser.frameworks.", "vinedresser.preflight.")


class Entry(NamedTuple):
    """One entry of a traceback.

    Attributes:
        instruction: offset of the instruction in its bytecode.
        line: line in the source.
    """

    frame: FrameType
    instruction: int
    line: int


class PlainTracebacks:
    """Removes frames of vinedresser from uncaught errors.

    Framework calls that pass through vinedresser's code leave frames in tracebacks, which are
    removed before the previous `sys.excepthook` is called.

    Args:
        shield: guards the cleaning.
        clean: removes the frames caused by vinedresser from the entries of a traceback.
    """

    def __init__(self, shield: Shield, clean: Callable[[list[Entry]], Iterable[Entry]]) -> None:
        self._clean_entries = clean
        self._clean = shield.guard("the cleaning of a traceback", self._clean_error)
        self._previous = sys.excepthook
        sys.excepthook = self._show

    def remove(self) -> None:
        """Restore the previous `sys.excepthook` unless another one was installed since."""
        if sys.excepthook == self._show:
            sys.excepthook = self._previous

    def _show(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._clean(error)
        self._previous(kind, error, error.__traceback__ or trace)

    def _clean_error(self, error: BaseException) -> None:
        """Clean the tracebacks of an error and of its causes."""
        seen: set[int] = set()
        pending: list[BaseException | None] = [error]
        while pending:
            one = pending.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            trace: TracebackType | None = None
            for entry in reversed([*self._clean_entries(_entries(one.__traceback__))]):
                trace = TracebackType(trace, *entry)
            one.__traceback__ = trace
            pending += [one.__cause__, one.__context__]


def is_capture_frame(entry: Entry) -> bool:
    """Return whether an entry belongs to what captures a script or checks it."""
    return str(entry.frame.f_globals.get("__name__", "")).startswith(_OURS)


def without_capture_frames(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that do not belong to what captures a script or checks it."""
    return [entry for entry in entries if not is_capture_frame(entry)]


def _entries(trace: TracebackType | None) -> list[Entry]:
    entries = []
    while trace is not None:
        entries.append(Entry(trace.tb_frame, trace.tb_lasti, trace.tb_lineno))
        trace = trace.tb_next
    return entries
