"""Uncaught errors, shown as they would be without us."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import NamedTuple

from vinedresser.capture.shield import Shield

__all__ = ["Entry", "PlainTracebacks", "is_ours", "without_ours"]


class Entry(NamedTuple):
    """One entry of a traceback.

    Attributes:
        frame: whose code ran.
        instruction: at which of its instructions, an offset into its bytecode.
        line: of the source.
    """

    frame: FrameType
    instruction: int
    line: int


class PlainTracebacks:
    """Shows an uncaught error as it would be without us.

    Where a framework has to go through our code, that stands in the tracebacks of errors inside. It
    is taken out before whoever shows errors gets to see it.

    Args:
        shield: around it.
        tidy: takes what is ours, or is there because of us, out of the entries of a traceback.
    """

    def __init__(self, shield: Shield, tidy: Callable[[list[Entry]], Iterable[Entry]]) -> None:
        self._tidy = tidy
        self._clean = shield.guard("tidying a traceback", self._cleaned)
        self._previous = sys.excepthook
        sys.excepthook = self._show

    def remove(self) -> None:
        """Leave errors to whoever had them, unless somebody else has taken them since."""
        if sys.excepthook == self._show:
            sys.excepthook = self._previous

    def _show(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._clean(error)
        self._previous(kind, error, error.__traceback__ or trace)

    def _cleaned(self, error: BaseException) -> None:
        """Tidy the tracebacks of an error and of its causes."""
        seen: set[int] = set()
        pending: list[BaseException | None] = [error]
        while pending:
            one = pending.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            trace: TracebackType | None = None
            for entry in reversed([*self._tidy(_entries(one.__traceback__))]):
                trace = TracebackType(trace, *entry)
            one.__traceback__ = trace
            pending += [one.__cause__, one.__context__]


def is_ours(entry: Entry) -> bool:
    """Say whether an entry is of code of ours."""
    return str(entry.frame.f_globals.get("__name__", "")).startswith("vinedresser.capture.")


def without_ours(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that are not of code of ours."""
    return [entry for entry in entries if not is_ours(entry)]


def _entries(trace: TracebackType | None) -> list[Entry]:
    entries = []
    while trace is not None:
        entries.append(Entry(trace.tb_frame, trace.tb_lasti, trace.tb_lineno))
        trace = trace.tb_next
    return entries
