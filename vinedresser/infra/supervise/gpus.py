"""Exclusive leases of this machine's GPUs for trainings.

Each GPU has a lock file. The training's supervisor inherits the lock, so the kernel releases it
when the supervisor ends in any way. Locks also hold between flows of the same user, and for
trainings whose flow was killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import LaunchError
from vinedresser.plain_logs import plain_logger

__all__ = [
    "NO_GPUS",
    "VISIBLE_GPUS",
    "Lease",
    "gpu_models",
    "kernel_values",
    "lease",
    "visible_gpus",
]

_log = plain_logger(__name__)

# Tells CUDA which devices a process sees.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_DRIVER = Path("/proc/driver/nvidia/gpus")
# Seconds between two attempts to lock enough devices.
_LOOK = 0.2


class Lease(NamedTuple):
    """GPUs leased exclusively.

    Attributes:
        names: device names as in CUDA_VISIBLE_DEVICES.
        descriptors: of the locks, not inheritable; closing all copies ends the lease.
    """

    names: Sequence[str]
    descriptors: Sequence[int]

    def close(self) -> None:
        """Close this process's copies of the locks."""
        for descriptor in self.descriptors:
            os.close(descriptor)


NO_GPUS = Lease((), ())


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of the GPUs that a process may use.

    These are the devices in CUDA_VISIBLE_DEVICES up to the first -1, as CUDA reads it. If it is
    not set, they are the numbers of the devices known to NVIDIA's driver.

    Args:
        environment: environment variables of the process; by default, those of this one.
    """
    given = environment.get(VISIBLE_GPUS)
    if given is None:
        return [str(number) for number, _ in enumerate(_DRIVER.glob("*"))]
    names = [one.strip() for one in given.split(",")]
    end = next((at for at, name in enumerate(names) if name in ("", "-1")), len(names))
    return names[:end]


def gpu_models() -> list[str]:
    """Return the model of each GPU that NVIDIA's driver knows."""
    found = sorted(_DRIVER.glob("*/information"))
    return [model for path in found for model in kernel_values(path, "Model")]


def kernel_values(path: str | os.PathLike[str], name: str) -> list[str]:
    """Return the values of ``name : value`` in a file of the kernel; [] if it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [value.strip() for value in re.findall(rf"^{name}\s*:(.*)$", text, re.MULTILINE)]


def lease(count: int, given_up: Callable[[], bool]) -> Lease:
    """Wait for a number of free GPUs and lease them.

    Args:
        given_up: returns True to stop waiting.

    Returns:
        The lease; `NO_GPUS` if the wait was given up.

    Raises:
        LaunchError: the machine has fewer GPUs, or the lock files cannot be created.
    """
    names = visible_gpus()
    if len(names) < count:
        raise LaunchError(f"{count} GPUs requested; this machine has {len(names)}")
    folder = _folder()
    waits = False
    while not given_up():
        taken = _take(folder, names, count)
        if taken is not None:
            return taken
        if not waits:
            _log.warning("waiting for %d free GPUs among %s", count, ", ".join(names))
        waits = True
        time.sleep(_LOOK)
    return NO_GPUS


def _take(folder: Path, names: Sequence[str], count: int) -> Lease | None:
    """Lease the first free GPUs; return None and hold none if there are too few."""
    found = Lease([], [])
    for name in names:
        if len(found.names) == count:
            break
        path = folder / re.sub(r"[^\w.-]", "_", name)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            found.close()
            raise LaunchError(f"{path}: cannot be created: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        found = Lease([*found.names, name], [*found.descriptors, descriptor])
    if len(found.names) == count:
        return found
    found.close()
    return None


def _folder() -> Path:
    """Return the folder of the lock files, on this machine: homes may be shared by machines."""
    folder = Path(tempfile.gettempdir(), f"vinedresser-gpus-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as error:
        raise LaunchError(f"{folder}: cannot be created: {error.strerror}") from error
    if owner != os.getuid():
        raise LaunchError(f"{folder}: belongs to another user; remove it")
    return folder
