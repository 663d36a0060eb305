"""The trainers of a run and all their descendants."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from vinedresser.infra.supervise.supervisor.trainer import Trainer
from vinedresser.processes import Environment, descendants, kill_group, kill_with

# Seconds to wait for killed processes; one in an uninterruptible system call outlives SIGKILL.
_PATIENCE = 2.0


class Family:
    """The trainers of a run and all their descendants.

    The supervisor must be a subreaper: then every descendant that loses its parent, or makes itself
    a daemon, becomes the supervisor's child.

    Args:
        belongs: returns whether an environment is that of a descendant.
    """

    def __init__(self, belongs: Callable[[Environment], bool]) -> None:
        self._trainers: dict[int, Trainer] = {}
        self._belongs = belongs
        self._spared: set[int] = set()

    def spare(self, pid: int) -> None:
        """Add a child that is not part of the training: it is not asked to end, and not killed."""
        self._spared.add(pid)

    def adopt(self, trainer: Trainer) -> None:
        """Add a trainer that was started."""
        self._trainers[trainer.identity.pid] = trainer

    def members(self) -> list[int]:
        """Return the ids of the living processes."""
        self.reap_orphans()
        return [pid for pid in descendants(os.getpid()) if pid not in self._spared]

    def ask(self) -> None:
        """Send SIGTERM to the living processes; if a trainer was a shell, one is the training."""
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes (SIGKILL), and wait for their end."""
        deadline = time.monotonic() + _PATIENCE
        for trainer in self._trainers.values():
            kill_group(trainer.identity)
        while (members := self.members()) and time.monotonic() < deadline:
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        # Processes that are no longer descendants, such as those handed over to a daemon.
        kill_with(self._belongs)

    def reap_orphans(self) -> None:
        """Reap adopted descendants that have ended, which would remain zombies."""
        with suppress(ChildProcessError):
            while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                trainer = self._trainers.get(child.si_pid)
                if trainer is not None:
                    trainer.reap()
                else:
                    os.waitpid(child.si_pid, os.WNOHANG)
