"""The output of the training in files, line by line, bounded in size."""

from __future__ import annotations

import codecs
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from vinedresser.objects.files import APPEND, make_folder, open_file

__all__ = ["LineSplitter", "OutputLog"]

_MOST_CHARACTERS = 64 * 1024
_MOST_BYTES = 64 * 1024**2
# Bytes kept of the end once the log is full: enough for a traceback.
_MOST_TAIL = 64 * 1024


class LineSplitter:
    """Splits the bytes of a stream into complete lines of text.

    Bytes that are not UTF-8 become U+FFFD. A bare carriage return restarts the line, as in a
    terminal, so that only the final state of a progress bar remains.

    Args:
        most: maximum number of characters kept of a line; the rest is counted.
    """

    def __init__(self, most: int = _MOST_CHARACTERS) -> None:
        self._most = most
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line = ""
        self._cut = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that end in this chunk, without their line ends."""
        *ends, rest = self._decoder.decode(chunk).split("\n")
        lines = []
        for end in ends:
            self._extend(end)
            lines.append(self._take())
        self._extend(rest)
        return lines

    def close(self) -> list[str]:
        """Return the text after the last line end, if any."""
        self._extend(self._decoder.decode(b"", final=True))
        return [self._take()] if self._line else []

    def _extend(self, text: str) -> None:
        line = self._line + text
        # Except at the very end, where a line feed may follow.
        restart = line.rfind("\r", 0, -1)
        if restart >= 0:
            line = line[restart + 1 :]
            self._cut = 0
        self._cut += max(len(line) - self._most, 0)
        self._line = line[: self._most]

    def _take(self) -> str:
        line = self._line.removesuffix("\r")
        if self._cut:
            line += f" [{self._cut} more characters cut]"
        self._line, self._cut = "", 0
        return line


class OutputLog:
    """A log file of bounded size; beyond the bound only the end is kept.

    Disk errors are reported, never raised: a full disk must not end a training.

    Args:
        key: the file in it; appended to.
        report: called once with one sentence if the file cannot be written.
        most: size in bytes beyond which lines are omitted.
    """

    def __init__(
        self,
        directory: Path,
        key: str,
        report: Callable[[str], None],
        *,
        most: int = _MOST_BYTES,
    ) -> None:
        self._path = directory / key
        self._report = report
        self._most = most
        self._size = 0
        self._left_out = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._failed = False
        self._file: int | None = None
        try:
            if folder := key.rpartition("/")[0]:
                make_folder(directory, folder)
            self._file = open_file(directory, key, APPEND)
        except OSError as error:
            self._fail(error)

    def write(self, lines: Iterable[str]) -> None:
        """Append lines."""
        fitting = bytearray()
        for line in lines:
            content = line.encode() + b"\n"
            if not self._left_out and self._size + len(content) <= self._most:
                self._size += len(content)
                fitting += content
            else:
                self._keep(content)
        self._append(fitting)

    def close(self) -> None:
        """Append the end of the omitted output, and close the file."""
        if self._left_out:
            between = self._left_out - self._tail_size
            self._append(f"[vinedresser: {between} bytes omitted]\n".encode())
            self._append(b"".join(self._tail))
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _keep(self, content: bytes) -> None:
        if not self._left_out:
            notice = f"[vinedresser: limit of {self._most} bytes reached; only the end is kept]\n"
            self._append(notice.encode())
        self._left_out += len(content)
        self._tail.append(content)
        self._tail_size += len(content)
        while self._tail_size > _MOST_TAIL and len(self._tail) > 1:
            self._tail_size -= len(self._tail.popleft())

    def _append(self, content: bytes | bytearray) -> None:
        try:
            while content and self._file is not None:
                content = content[os.write(self._file, content) :]
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            reason = f"{self._path}: {error.strerror}" if error.strerror else error
            self._report(f"{reason}; output is not logged")
