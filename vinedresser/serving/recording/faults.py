"""The barrier that keeps vinedresser's own errors out of the service."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from vinedresser.plain_logs import plain_logger

_LOG = plain_logger("vinedresser.serving")

P = ParamSpec("P")
R = TypeVar("R")


class Faults:
    """Catches the errors of callbacks, logs each kind once as a warning, and counts them.

    Args:
        service: name of the service, for the messages.

    Attributes:
        counts: number of occurrences of each kind.
        sentences: the first message of each kind.
    """

    def __init__(self, service: str) -> None:
        self.counts: Counter[str] = Counter()
        self.sentences: dict[str, str] = {}
        self._service = service
        self._lock = threading.Lock()

    def begin_process(self) -> None:
        """Begin anew in a forked process, in which no thread holds the lock."""
        self._lock = threading.Lock()

    def report(self, kind: str, sentence: str) -> None:
        """Count an occurrence, and log the first one of its kind."""
        with self._lock:
            self.counts[kind] += 1
            first = self.counts[kind] == 1
            if first:
                self.sentences[kind] = sentence
        if first:
            _LOG.warning("recording requests of %s: %s", self._service, sentence)

    def guard(self, doing: str, callback: Callable[P, R]) -> Callable[P, R | None]:
        """Return a wrapper of a callback that never raises an Exception; it returns None instead.

        Args:
            doing: what the callback does, for the message.
        """

        @functools.wraps(callback)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return callback(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (the one place that shields a service)
                kind = f"{doing}: {type(error).__name__}"
                self.report(kind, f"{doing} failed: {type(error).__name__}: {error}")
                _LOG.debug("%s", kind, exc_info=error)
                return None

        return guarded
