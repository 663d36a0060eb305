"""Pass signals on to the supervisors that this process has started.

A supervisor that also gets the signal itself concludes that it was sent to all processes, and does
not send it to the trainer a second time.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["channel", "pass_on"]

_channels: set[socket.socket] = set()


@contextmanager
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Provide the two ends of a channel: this process's, and that of a supervisor.

    This end is read to its end when the supervisor has closed the other one.
    """
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with own, other:
        _channels.add(own)
        try:
            yield own, other
        finally:
            _channels.discard(own)


def pass_on(number: int) -> None:
    """Pass a signal that this process got on to its trainings; safe in a handler of signals."""
    for own in tuple(_channels):
        # Its supervisor has ended, or has not read hundreds of earlier ones.
        with suppress(OSError):
            own.send(bytes([number]), socket.MSG_DONTWAIT)
