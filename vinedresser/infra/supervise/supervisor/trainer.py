"""The trainer process: start, stop request, kill with all its descendants."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from vinedresser.infra.supervise.supervisor.prctl import end_with_parent
from vinedresser.processes import (
    Environment,
    ProcessIdentity,
    boot_id,
    descendants,
    identify,
    kill_group,
    kill_with,
)

# Seconds to wait for killed processes; one in an uninterruptible system call outlives SIGKILL.
_PATIENCE = 2.0


class Trainer:
    """A program in a session and process group of its own.

    It gets SIGTERM when the supervisor dies. The supervisor must be a subreaper: then every
    descendant that loses its parent, or makes itself a daemon, becomes the supervisor's child.

    Args:
        argv: the program and its arguments.
        cwd: the directory to start it in.
        environment: its complete environment.
        belongs: returns whether an environment is that of a descendant.

    Attributes:
        identity: its process.
        ended: a descriptor that becomes readable when it ends.
        outputs: its standard output and error, unbuffered.

    Raises:
        OSError: it cannot be started; ``filename`` names the program or the directory.
    """

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Environment,
        belongs: Callable[[Environment], bool],
    ) -> None:
        supervisor = os.getpid()
        self._belongs = belongs
        readers, writers = zip(os.pipe(), os.pipe(), strict=True)
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=environment,
                stdout=writers[0],
                stderr=writers[1],
                # The trainer holds the reading ends, too: if the supervisor dies, printing must
                # not fail before the last checkpoint is written.
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
        # If it has ended already it is a zombie, which needs no identity.
        self.identity = identify(pid) or ProcessIdentity(pid, -1, boot_id(), os.uname().nodename)

    def send(self, number: int) -> bool:
        """Send a signal to the trainer alone; return whether it was still running.

        Not to its group: when a data loader worker is terminated, PyTorch raises in the trainer,
        before any checkpoint is written.
        """
        if self._process.poll() is not None:
            return False
        self._process.send_signal(number)
        return True

    def ask_family(self) -> None:
        """Send SIGTERM to the processes it left behind; if it was a shell, one is the training."""
        for pid in self.family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill_family(self) -> None:
        """Kill the trainer and all its descendants (SIGKILL), and wait for their end."""
        deadline = time.monotonic() + _PATIENCE
        kill_group(self.identity)
        while (family := self.family()) and time.monotonic() < deadline:
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        # Processes that are no longer descendants, such as those handed over to a daemon.
        kill_with(self._belongs)

    def family(self) -> list[int]:
        """Return the ids of the living processes among the trainer and its descendants."""
        self.reap_orphans()
        return descendants(os.getpid())

    def reap_orphans(self) -> None:
        """Reap adopted descendants that have ended, which would remain zombies."""
        with suppress(ChildProcessError):
            while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if child.si_pid == self._process.pid:
                    # Left for `exit_code`.
                    return
                os.waitpid(child.si_pid, os.WNOHANG)

    def exit_code(self) -> int:
        """Wait for the trainer's end; return its exit code or the negative signal number."""
        return self._process.wait()
