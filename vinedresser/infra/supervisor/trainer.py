"""The trainer as the supervisor sees it: started, asked to end, killed with all its family."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from vinedresser.infra.supervisor.prctl import end_with_parent
from vinedresser.processes import (
    ProcessIdentity,
    boot_id,
    descendants,
    identify,
    kill_group,
    kill_marked,
)

__all__ = ["Trainer"]

# Processes need a moment to die; one in an uninterruptible system call outlives even SIGKILL, and
# nobody waits for it longer than this.
_PATIENCE = 2.0


class Trainer:
    """A program in a session and process group of its own.

    It gets SIGTERM when the supervisor dies. The supervisor must be a subreaper: then every
    descendant that loses its parent, or makes itself a daemon, becomes the supervisor's child.

    Args:
        argv: the program and its arguments.
        cwd: the directory to start it in.
        environment: all of its environment.
        marker: the entry in there by which its descendants are known.

    Attributes:
        identity: its process.
        ended: a descriptor that becomes readable when it ends.
        outputs: its standard output and error, unbuffered.

    Raises:
        OSError: it cannot be started; ``filename`` names the program or the directory.
    """

    def __init__(
        self, argv: Sequence[str], cwd: str, environment: Mapping[str, str], marker: str
    ) -> None:
        supervisor = os.getpid()
        self._marker = marker
        readers, writers = zip(os.pipe(), os.pipe(), strict=True)
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment,
                stdout=writers[0],
                stderr=writers[1],
                # It holds the reading ends as well: when the supervisor dies, printing must not
                # fail before the last checkpoint is written.
                pass_fds=readers,
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
        # One that has ended already is a zombie, which no one will ever need to recognise.
        self.identity = identify(pid) or ProcessIdentity(pid, -1, boot_id(), os.uname().nodename)

    def ask(self) -> bool:
        """Ask it to end (SIGTERM), it alone; say whether it was there to be asked.

        Not the group: PyTorch's data loader raises in the trainer when a worker of it is
        terminated, before any checkpoint is written.
        """
        if self._process.poll() is not None:
            return False
        self._process.terminate()
        return True

    def ask_family(self) -> None:
        """Ask whom it left behind to end: where it was a shell, the training proper is there."""
        for pid in self.family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill_family(self) -> None:
        """Kill it and all its descendants (SIGKILL), and wait until they are gone."""
        deadline = time.monotonic() + _PATIENCE
        kill_group(self.identity)
        while (family := self.family()) and time.monotonic() < deadline:
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        # Those that are no descendants any more, such as what was handed to another daemon.
        kill_marked(self._marker)

    def family(self) -> list[int]:
        """Return the ids of it and its descendants, those that live."""
        self.reap_orphans()
        return descendants(os.getpid())

    def reap_orphans(self) -> None:
        """Take note of the end of adopted descendants, who would stay zombies otherwise."""
        with suppress(ChildProcessError):
            while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if child.si_pid == self._process.pid:
                    # Its exit code is for `exit_code`.
                    return
                os.waitpid(child.si_pid, os.WNOHANG)

    def exit_code(self) -> int:
        """Wait for its end; return its exit code, or the negative number of the signal."""
        return self._process.wait()
