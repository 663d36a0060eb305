"""Signals that arrive at a supervisor, by itself or through its owner, once each."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

from vinedresser.foreign_signals import FOREIGN, handle_foreign

# Seconds within which a signal that is sent to all processes of a job reaches each of them.
_SPREAD = 1.0


class ArrivingSignals:
    """Tells which signals are to be passed on to the trainer, and which of them it has got already.

    SLURM sends a signal to all processes of a job step, others to the command that was started. So
    one that both the supervisor and its owner were sent has reached the trainer, too. A handler of
    the trainer that saves a checkpoint would otherwise be interrupted by itself, and the second
    SIGTERM ends a training at once.

    Args:
        channel: descriptor on which the owner sends the number of each signal that it was sent, a
            byte each; None if there is none.
        selector: calls the key's data when ready.

    Attributes:
        names: names of the foreign signals that have arrived, in order.
    """

    def __init__(self, channel: int | None, selector: selectors.BaseSelector) -> None:
        self.names: list[str] = []
        self._channel = channel
        self._selector = selector
        # When each first arrived, and from where.
        self._first: dict[int, float] = {}
        self._direct: set[int] = set()
        self._by_owner: set[int] = set()
        handle_foreign(self.arrived)
        if channel is not None:
            os.set_blocking(channel, False)
            selector.register(channel, selectors.EVENT_READ, self._read)

    def arrived(self, number: int) -> None:
        """Note a signal that was sent to this process."""
        self._note(number, self._direct)

    def take(self) -> Iterator[int]:
        """Yield the foreign signals to be sent to the trainer now."""
        for number in FOREIGN & self._first.keys():
            if not self.pending(number):
                everywhere = self.everywhere(number)
                self._forget(number)
                if not everywhere:
                    yield number

    def pending(self, number: int) -> bool:
        """Return whether a signal arrived so recently that it may have been sent to others, too."""
        first = self._first.get(number)
        recent = first is not None and time.monotonic() < first + _SPREAD
        # Without a channel the owner cannot tell that it was sent the signal.
        return recent and self._channel is not None and not self.everywhere(number)

    def arrived_here(self, number: int) -> bool:
        """Return whether this process was sent a signal that is not foreign."""
        return number in self._direct

    def everywhere(self, number: int) -> bool:
        """Return whether a signal was sent to all processes, and so to the trainer."""
        return number in self._direct and number in self._by_owner

    def _note(self, number: int, source: set[int]) -> None:
        source.add(number)
        if number not in self._first:
            self._first[number] = time.monotonic()
            if number in FOREIGN:
                self.names.append(_name(number))

    def _forget(self, number: int) -> None:
        del self._first[number]
        self._direct.discard(number)
        self._by_owner.discard(number)

    def _read(self) -> None:
        assert self._channel is not None, "registered with a channel only"
        numbers = b""
        with suppress(ConnectionResetError):
            numbers = os.read(self._channel, 256)
        if not numbers:
            # The owner is gone.
            self._selector.unregister(self._channel)
            return
        for number in numbers:
            self._note(number, self._by_owner)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
