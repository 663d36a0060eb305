"""One process of the training: its start, signals to it, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from vinedresser.infra.supervise.supervisor.prctl import end_with_parent
from vinedresser.processes import (
    Environment,
    ProcessIdentity,
    boot_id,
    descendants,
    identify,
    is_suspended,
)
from vinedresser.store.records import STACKS_VARIABLE

__all__ = ["STACKS_SIGNAL", "Trainer"]

STACKS_SIGNAL = signal.SIGURG
"""Has no effect on a process that does not handle it."""

# More than any stack that Python prints.
_MOST_BYTES = 1 << 20
_FRAME = re.compile(
    r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE
)
# Limits of a process that only waits. A data loader wakes its main thread every five seconds to see
# whether its workers live, a download does so for each block.
_WAKES = 1.0
# Share of a core. Threads that wait for Python's lock look for it 200 times a second.
_SHARE = 0.01
# Bytes per second that are read and written; the heartbeats of a hook have some hundred.
_BYTES = 10_000
# Of each that is allowed for the looks themselves.
_SLACK = (10, 0.05, 100_000)
_TICKS = os.sysconf("SC_CLK_TCK")


class Trainer:
    """A program in a session and process group of its own.

    It gets SIGTERM when the supervisor dies.

    Args:
        argv: the program and its arguments.
        cwd: the directory to start it in.
        environment: its complete environment.

    Attributes:
        ended: a descriptor that becomes readable when it ends.
        outputs: its standard output and error, unbuffered.

    Raises:
        OSError: it cannot be started; ``filename`` names the program or the directory.
    """

    def __init__(self, argv: Sequence[str], cwd: str, environment: Environment) -> None:
        supervisor = os.getpid()
        self._stacks = _StackFile()
        inherited = self._stacks.descriptor
        readers, writers = zip(os.pipe(), os.pipe(), strict=True)
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**environment, STACKS_VARIABLE: f"{supervisor}:{inherited}"},
                stdout=writers[0],
                stderr=writers[1],
                # The trainer holds the reading ends, too: if the supervisor dies, printing must
                # not fail before the last checkpoint is written.
                pass_fds=(*readers, inherited),
                start_new_session=True,
                # Safe: the supervisor has one thread.
                preexec_fn=lambda: end_with_parent(supervisor, signal.SIGTERM),  # noqa: PLW1509
            )
        except OSError:
            for descriptor in readers:
                os.close(descriptor)
            raise
        finally:
            for descriptor in writers:
                os.close(descriptor)
        pid = self._process.pid
        self.outputs: tuple[IO[bytes], IO[bytes]] = (
            os.fdopen(readers[0], "rb", buffering=0),
            os.fdopen(readers[1], "rb", buffering=0),
        )
        self.ended = os.pidfd_open(pid)
        # If it has ended already it is a zombie, which needs no identity.
        self.identity = identify(pid) or ProcessIdentity(pid, -1, boot_id(), os.uname().nodename)
        self._stillness = _Stillness(pid)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def state(self) -> str:
        """Its state: "running", "stopped" by a signal, or "ended"."""
        if not self.running:
            return "ended"
        return "stopped" if is_suspended(self._process.pid) else "running"

    def ask_stack(self) -> bool:
        """Ask where it stands; return whether it may answer (`stack`)."""
        self._stacks.clear()
        return self._stacks.inherited_by(self._process.pid) and self.send(STACKS_SIGNAL)

    def stack(self) -> list[list[Any]]:
        """Return the frames of its main thread, once it has answered; see `_frames_of`."""
        return _frames_of(self._stacks.read())

    def place(self, spied: list[list[Any]]) -> dict[str, Any]:
        """Return where it stands, once it has answered; see `StacksRecord.ranks`.

        Args:
            spied: its frames if it has not answered.
        """
        frames = self.stack() or spied
        return {"state": self.state, "frames": frames, **self._stillness.look(frames)}

    def send(self, number: int) -> bool:
        """Send a signal to the trainer alone; return whether it was still running.

        Not to its group: when a data loader worker is terminated, PyTorch raises in the trainer,
        before any checkpoint is written.
        """
        if not self.running:
            return False
        self._process.send_signal(number)
        return True

    def reap(self) -> None:
        """Keep its exit code if it has ended; until then it remains a zombie."""
        self._process.poll()

    def exit_code(self) -> int:
        """Wait for the trainer's end; return its exit code or the negative signal number."""
        return self._process.wait()


class _StackFile:
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


def _frames_of(text: str) -> list[list[Any]]:
    """Return the frames of the main thread, the innermost first, as ``[file, line, function]``.

    Args:
        text: a traceback by faulthandler of the thread that got the signal. That is the main one,
            unless it has another signal to handle: then there are no frames.
    """
    frames = [[one["file"], int(one["line"]), one["function"]] for one in _FRAME.finditer(text)]
    return [] if frames and frames[-1][2] == "_bootstrap" else frames


class _Work(NamedTuple):
    """What a process has done since its start.

    Attributes:
        wakes: number of context switches of its main thread.
        seconds: processor time, with that of its descendants.
        bytes: bytes read and written by all of them, but for those that sockets receive.
    """

    wakes: int = 0
    seconds: float = 0.0
    bytes: int = 0


class _Stillness:
    """Compares what a process does at several looks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._frames: list[list[Any]] = []
        self._since = 0.0
        self._first = _Work()

    def look(self, frames: list[list[Any]]) -> dict[str, Any]:
        """Return for how many seconds it is "here", and whether it "works"; see `StacksRecord`.

        Args:
            frames: of its main thread; [] if it does not say where it is.
        """
        now, work = time.monotonic(), _work(self._pid)
        if not frames or frames != self._frames:
            self._frames, self._since, self._first = frames, now, work
            return {"here": 0.0, "works": True}
        seconds = now - self._since
        done = [after - before for after, before in zip(work, self._first, strict=True)]
        rates = zip(done, (_WAKES, _SHARE, _BYTES), _SLACK, strict=True)
        works = any(abs(one) > rate * seconds + slack for one, rate, slack in rates)
        return {"here": seconds, "works": works}


def _work(pid: int) -> _Work:
    """Return what a process and its descendants have done, without those that have ended."""
    seconds, moved = 0.0, 0
    for one in (pid, *descendants(pid)):
        with suppress(OSError):
            # From the state on: the name may have blanks.
            stat = Path(f"/proc/{one}/stat").read_text(errors="replace").rpartition(")")[2].split()
            seconds += (int(stat[11]) + int(stat[12])) / _TICKS
            moved += _sum(Path(f"/proc/{one}/io"), "rchar", "wchar")
    wakes = 0
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status")
        wakes = _sum(status, "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    return _Work(wakes, seconds, moved)


def _sum(file: Path, *names: str) -> int:
    """Return the sum of some of the numbers of a file of the kernel."""
    pairs = (line.split(":") for line in file.read_text(errors="replace").splitlines())
    return sum(int(value) for name, value in pairs if name in names)
