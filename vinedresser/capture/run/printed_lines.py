"""The lines that this process prints, in which metrics are searched."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO

from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.printed_metrics import LONGEST, MetricSearch
from vinedresser.store.records import METRICS_VARIABLE

__all__ = ["PRINTED", "PrintedLines"]

# Seconds for which a thread waits while another one delivers, which delivers its values afterwards:
# that one may import modules, and wait for this one.
_PATIENCE = 1.0

_Sink = Callable[[Mapping[str, float]], object]


class PrintedLines:
    """Gives the metrics in the lines that this process prints to the hook of its training.

    A line is searched before its end is written, so that the hook, and not a reader of the output,
    is the first to have it.

    Attributes:
        sink: receives the metrics of a line; None: there is no hook yet.
        open_hook: called with the metrics if there is no hook; returns whether to look on.
    """

    def __init__(self) -> None:
        self.sink: _Sink | None = None
        self.open_hook: Callable[[], bool] | None = None
        self._search: MetricSearch | None = None
        self._begun = False
        # Any thread may print: what was found waits here for the one thread that delivers.
        self._found: deque[Mapping[str, float]] = deque()
        self._lock = threading.Lock()
        self._delivering: int | None = None

    def begin(self, *, listen: bool = True) -> None:
        """Begin to search, if the run has such metrics; repeating this is harmless.

        Args:
            listen: to the output of this process; otherwise only `take` has lines.
        """
        metrics = os.environ.get(METRICS_VARIABLE)
        if not self._begun and metrics:
            self._begun = True
            ATTACHMENT.shield.guard("searching the output", self._begin)(metrics, listen)

    def _begin(self, metrics: str, listen: bool) -> None:
        shield = ATTACHMENT.shield
        try:
            self._search = MetricSearch(json.loads(metrics), shield.report)
        except ImportError as error:
            shield.report(
                f"{sys.executable}: metrics are not searched in what it prints: {error}; install "
                "google-re2 for this Python"
            )
            return
        for stream in (sys.stdout, sys.stderr) if listen else ():
            if hasattr(stream, "__dict__"):
                self._listen(stream)

    def take(self, line: str) -> None:
        """Search a line, and deliver what it has."""
        values = {} if self._search is None else self._search.values(line)
        # A problem that is reported is printed, too.
        if not values or self._delivering == threading.get_ident():
            return
        self._found.append(values)
        # Looked at again after the lock is free: another thread may have given up just before.
        while self._found and self._lock.acquire(timeout=_PATIENCE):
            self._delivering = threading.get_ident()
            try:
                while self._found:
                    self._deliver(self._found.popleft())
            finally:
                self._delivering = None
                self._lock.release()

    def _deliver(self, values: Mapping[str, float]) -> None:
        if self.sink is None and self.open_hook is not None and not self.open_hook():
            self._search = None
        elif self.sink is not None:
            self.sink(values)

    def _listen(self, stream: IO[str]) -> None:
        write = stream.write
        take = ATTACHMENT.shield.guard("searching metrics in the output", self._feed)
        rest = [""]

        def listening(text: str, /) -> int:
            # `print` writes each of its arguments.
            if isinstance(text, str) and "\n" not in text and len(rest[0]) < LONGEST:
                rest[0] += text
            else:
                take(rest, text)
            return write(text)

        vars(stream)["write"] = listening

    def _feed(self, rest: list[str], text: object) -> None:
        """Search the lines that end in a text.

        Args:
            rest: the beginning of the current line, which is updated.
        """
        if not isinstance(text, str):
            # The stream will refuse it.
            return
        *ends, last = (rest[0] + text).split("\n")
        # As in a terminal, a carriage return begins the line again.
        rest[0] = last[last.rfind("\r", 0, -1) + 1 :][:LONGEST]
        for end in ends:
            self.take(end.rstrip("\r").rpartition("\r")[2])


PRINTED = PrintedLines()
