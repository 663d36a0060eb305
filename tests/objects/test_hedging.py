"""Slow reads are repeated: the first answer counts, and few reads are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vinedresser.objects.hedging import Hedge


def warmed(reads: int = 100) -> Hedge:
    """Return a hedge that knows that reads take no time."""
    hedge = Hedge()
    for _ in range(reads):
        assert hedge.read(lambda: b"quick", 1000) == b"quick"
    return hedge


class Stalling:
    """A read of which the first call waits, and later ones return at once.

    Args:
        error: raised by later calls.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.answer = threading.Event()
        self.calls = 0
        self._lock = threading.Lock()
        self._error = error

    def __call__(self) -> bytes:
        with self._lock:
            self.calls += 1
            first = self.calls == 1
        if first:
            assert self.answer.wait(60)
            return b"first"
        if self._error is not None:
            self.answer.set()
            raise self._error
        return b"second"


@contextmanager
def answering(stalling: Stalling) -> Iterator[None]:
    """Have it answer at the end, whatever happens."""
    try:
        yield
    finally:
        stalling.answer.set()


def test_the_second_read_counts_if_it_is_first() -> None:
    hedge, stalling = warmed(), Stalling()
    with answering(stalling):
        assert hedge.read(stalling, 1000) == b"second"
    assert (hedge.repeated, stalling.calls) == (1, 2)


def test_the_first_read_counts_if_the_second_fails() -> None:
    hedge, stalling = warmed(), Stalling(OSError("refused"))
    with answering(stalling):
        assert hedge.read(stalling, 1000) == b"first"
    assert hedge.repeated == 1


def test_an_error_is_raised_as_without_it() -> None:
    hedge = warmed()

    def fails() -> bytes:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        hedge.read(fails, 1000)
    assert hedge.repeated == 0


def test_reads_of_an_unknown_size_are_not_repeated() -> None:
    hedge, stalling = warmed(), Stalling()
    threading.Timer(0.2, stalling.answer.set).start()
    assert hedge.read(stalling, 1_000_000) == b"first"
    assert stalling.calls == 1


def test_at_most_one_of_twenty_reads_is_repeated() -> None:
    hedge = warmed(100)
    for _ in range(8):
        stalling = Stalling()
        timer = threading.Timer(0.3, stalling.answer.set)
        timer.start()
        hedge.read(stalling, 1000)
        timer.cancel()
        stalling.answer.set()
    assert hedge.repeated == 5
