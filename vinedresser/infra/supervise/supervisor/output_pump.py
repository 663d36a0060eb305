"""Copies the trainer's output to the log and optionally to the supervisor's own output."""

from __future__ import annotations

import os
import select
import selectors
from collections.abc import Callable
from typing import IO

from vinedresser.infra.supervise.supervisor.output_log import LineSplitter

_READ = 64 * 1024
# A pipe that polls as writable takes this many bytes without blocking.
_WRITE = select.PIPE_BUF


class OutputPump:
    """Moves one output stream of the trainer, driven by a selector, without blocking.

    A slow receiver of the forwarded bytes makes the trainer wait, as a plain pipe would. When the
    receiver is gone, forwarding ends and the training continues.

    Args:
        selector: calls the key's data when ready; must accept files of any kind.
        source: unbuffered stream; closed here at its end.
        target: descriptor to forward to; None to forward nothing.
        deliver: receives the lines.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        source: IO[bytes],
        target: int | None,
        deliver: Callable[[list[str]], None],
    ) -> None:
        self._selector = selector
        self._source = source
        self._target = target
        self._deliver = deliver
        self._lines = LineSplitter()
        self._pending = memoryview(b"")
        self.closed = False
        selector.register(source, selectors.EVENT_READ, self._read)

    def forward_no_more(self) -> None:
        """Stop forwarding; lines are still delivered."""
        if self._pending:
            self._pending = memoryview(b"")
            self._listen()
        self._target = None

    def close(self) -> None:
        """Deliver the unfinished line; anything still in the pipe is lost."""
        if self.closed:
            return
        self.forward_no_more()
        self.closed = True
        self._selector.unregister(self._source)
        self._source.close()
        self._deliver(self._lines.close())

    def _read(self) -> None:
        chunk = self._source.read(_READ)
        if not chunk:
            self.close()
            return
        self._deliver(self._lines.feed(chunk))
        if self._target is not None:
            self._pending = memoryview(chunk)
            self._selector.unregister(self._source)
            self._selector.register(self._target, selectors.EVENT_WRITE, self._write)

    def _write(self) -> None:
        assert self._target is not None, "registered for writing only with a target"
        try:
            self._pending = self._pending[os.write(self._target, self._pending[:_WRITE]) :]
        except BlockingIOError:
            # Another process made the pipe non-blocking, and it filled up since the poll.
            return
        except OSError:
            # The reader is gone.
            self.forward_no_more()
            return
        if not self._pending:
            self._listen()

    def _listen(self) -> None:
        assert self._target is not None, "called after forwarding only"
        self._selector.unregister(self._target)
        self._selector.register(self._source, selectors.EVENT_READ, self._read)
