"""Copies the trainer's output to the log and optionally to the supervisor's own output."""

from __future__ import annotations

import os
import select
import selectors
from collections import deque
from collections.abc import Callable
from typing import IO, NamedTuple, Protocol

from vinedresser.infra.supervise.supervisor.output_log import LineSplitter

__all__ = ["Outlet", "OutputPump", "Receiver", "Shown"]

_READ = 64 * 1024
# A pipe that polls as writable takes this many bytes without blocking.
_WRITE = select.PIPE_BUF


class Receiver:
    """A descriptor of the supervisor to which output is forwarded, without blocking.

    Once nobody reads it any more, output is no longer forwarded.

    Args:
        selector: calls the key's data when ready; must accept files of any kind.
    """

    def __init__(self, selector: selectors.BaseSelector, descriptor: int) -> None:
        self._selector = selector
        self._descriptor = descriptor
        # Pieces to write, each with the function that is called when it is written.
        self._pending: deque[tuple[memoryview, Callable[[], None]]] = deque()
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether everything is written."""
        return not self._pending

    def write(self, content: bytes, then: Callable[[], None]) -> None:
        """Write a piece after all earlier ones, and then call a function."""
        if self._closed or not content:
            then()
            return
        if not self._pending:
            self._selector.register(self._descriptor, selectors.EVENT_WRITE, self._write)
        self._pending.append((memoryview(content), then))

    def close(self) -> None:
        """Drop what is pending and all that follows."""
        self._closed = True
        if self._pending:
            self._selector.unregister(self._descriptor)
        while self._pending:
            self._pending.popleft()[1]()

    def _write(self) -> None:
        content, then = self._pending[0]
        try:
            content = content[os.write(self._descriptor, content[:_WRITE]) :]
        except BlockingIOError:
            # Another process made the pipe non-blocking, and it filled up since the poll.
            return
        except OSError:
            # The reader is gone.
            self.close()
            return
        if content:
            self._pending[0] = content, then
            return
        self._pending.popleft()
        if not self._pending:
            self._selector.unregister(self._descriptor)
        then()


class Shown(Protocol):
    """The part of an output stream that is forwarded."""

    def of(self, chunk: bytes, lines: list[str]) -> bytes:
        """Return what to forward of a chunk.

        Args:
            chunk: the bytes as they were read; b"" at the end of the stream.
            lines: the lines that ended in it; at the end, the unfinished one.
        """


class Outlet(NamedTuple):
    """Where output is forwarded to.

    Attributes:
        receiver: the descriptor; None to forward nothing.
        shown: the part of a stream that is forwarded.
    """

    receiver: Receiver | None
    shown: Shown


class OutputPump:
    """Moves one output stream of the trainer, driven by a selector, without blocking.

    A slow receiver of the forwarded bytes makes the trainer wait, as a plain pipe would. When the
    receiver is gone, forwarding ends and the training continues.

    Args:
        selector: calls the key's data when ready; must accept files of any kind.
        source: unbuffered stream; closed here at its end.
        deliver: receives the lines.
        outlet: where the stream is forwarded to.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        source: IO[bytes],
        deliver: Callable[[list[str]], None],
        outlet: Outlet,
    ) -> None:
        self._selector = selector
        self._source = source
        self._deliver = deliver
        self._receiver, self._shown = outlet
        self._lines = LineSplitter()
        self._waits = False
        self.closed = False
        self._listen()

    def close(self) -> None:
        """Deliver the unfinished line; anything still in the pipe is lost."""
        if self.closed:
            return
        self.closed = True
        if not self._waits:
            self._selector.unregister(self._source)
        self._source.close()
        lines = self._lines.close()
        self._deliver(lines)
        if self._receiver is not None:
            self._receiver.write(self._shown.of(b"", lines), lambda: None)

    def _listen(self) -> None:
        """Read on, unless the stream was closed meanwhile."""
        self._waits = False
        if not self.closed:
            self._selector.register(self._source, selectors.EVENT_READ, self._read)

    def _read(self) -> None:
        chunk = self._source.read(_READ)
        if not chunk:
            self.close()
            return
        lines = self._lines.feed(chunk)
        self._deliver(lines)
        if self._receiver is not None and (content := self._shown.of(chunk, lines)):
            self._waits = True
            self._selector.unregister(self._source)
            self._receiver.write(content, self._listen)
