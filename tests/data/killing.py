"""Killing trainings that read data."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

__all__ = ["kill"]


def kill(training: subprocess.Popen[bytes]) -> None:
    """Kill a training that leads a session, and then what it left.

    A worker of torch's DataLoader that was forked just before never learns that its parent is gone.
    """
    training.send_signal(signal.SIGKILL)
    training.wait()
    with suppress(ProcessLookupError):
        os.killpg(training.pid, signal.SIGKILL)
