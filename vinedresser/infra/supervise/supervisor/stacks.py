"""Where a trainer stands, by the traceback that Python's faulthandler writes on a signal.

The capture in the trainer registers the handler (`vinedresser/capture/attach/site`). It runs
whatever the trainer waits for, also while it holds the interpreter's lock.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from typing import Any

__all__ = ["STACKS_SIGNAL", "StackFile", "frames_of"]

STACKS_SIGNAL = signal.SIGURG
"""Has no effect on a process that does not handle it."""

# More than any stack that Python prints.
_MOST_BYTES = 1 << 20
_FRAME = re.compile(
    r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE
)


class StackFile:
    """A file in memory to which a trainer writes where it stands.

    Attributes:
        descriptor: its descriptor, to be inherited by the trainer under the same number.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("stacks", os.MFD_CLOEXEC)
        self._own = os.readlink(f"/proc/self/fd/{self.descriptor}")

    def inherited_by(self, pid: int) -> bool:
        """Return whether a process still has it: one that has closed it may write elsewhere."""
        with suppress(OSError):
            there = f"/proc/{pid}/fd/{self.descriptor}"
            inode = os.stat(there).st_ino
            return os.readlink(there) == self._own and inode == os.fstat(self.descriptor).st_ino
        return False

    def read(self) -> str:
        """Return what was written so far."""
        content = os.pread(self.descriptor, _MOST_BYTES, 0)
        return content.decode("ascii", errors="replace")

    def clear(self) -> None:
        """Remove what was written."""
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)


def frames_of(text: str) -> list[list[Any]]:
    """Return the frames of the main thread, the innermost first, as ``[file, line, function]``.

    Args:
        text: a traceback by faulthandler of the thread that got the signal. That is the main one,
            unless it has another signal to handle: then there are no frames.
    """
    frames = [[one["file"], int(one["line"]), one["function"]] for one in _FRAME.finditer(text)]
    return [] if frames and frames[-1][2] == "_bootstrap" else frames
