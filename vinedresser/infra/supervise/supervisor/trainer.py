"""One process of the training: its start, signals to it, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO, Any

from vinedresser.infra.supervise.supervisor.prctl import end_with_parent
from vinedresser.infra.supervise.supervisor.stacks import STACKS_SIGNAL, StackFile, frames_of
from vinedresser.infra.supervise.supervisor.stillness import Stillness
from vinedresser.processes import (
    Environment,
    ProcessIdentity,
    boot_id,
    identify,
    is_suspended,
)
from vinedresser.store.records import STACKS_VARIABLE


class Trainer:
    """A program in a session and process group of its own.

    It gets SIGTERM when the supervisor dies.

    Args:
        argv: the program and its arguments.
        cwd: the directory to start it in.
        environment: its complete environment.

    Attributes:
        identity: its process.
        ended: a descriptor that becomes readable when it ends.
        outputs: its standard output and error, unbuffered.

    Raises:
        OSError: it cannot be started; ``filename`` names the program or the directory.
    """

    def __init__(self, argv: Sequence[str], cwd: str, environment: Environment) -> None:
        supervisor = os.getpid()
        self._stacks = StackFile()
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
        self._stillness = Stillness(pid)

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
        """Return the frames of its main thread, once it has answered; see `frames_of`."""
        return frames_of(self._stacks.read())

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
