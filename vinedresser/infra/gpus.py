"""GPUs of this machine, of which each training gets some for itself.

A lock on a file for each keeps others away. The supervisor of the training inherits it, so that the
kernel releases it when that ends, however it does: it holds for other flows of this user, too, and
for trainings whose flow was killed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vinedresser.errors import LaunchError

__all__ = ["NO_GPUS", "VISIBLE_GPUS", "Lease", "lease", "visible_gpus"]

_log = logging.getLogger(__name__)

# The variable by which CUDA is told which devices a process sees.
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_DRIVER = Path("/proc/driver/nvidia/gpus")
# Seconds between two looks for a device that has become free.
_LOOK = 0.2


class Lease(NamedTuple):
    """GPUs that nobody else has.

    Attributes:
        names: as CUDA_VISIBLE_DEVICES has them.
        descriptors: of the locks, not inheritable; the lease is over when all copies are closed.
    """

    names: Sequence[str]
    descriptors: Sequence[int]

    def close(self) -> None:
        """Close this process's copies."""
        for descriptor in self.descriptors:
            os.close(descriptor)


NO_GPUS = Lease((), ())


def visible_gpus() -> list[str]:
    """Return the names of the GPUs that this process may use.

    Those in CUDA_VISIBLE_DEVICES, up to the first -1, as CUDA reads it; where it is not set, the
    numbers of those that NVIDIA's driver has.
    """
    given = os.environ.get(VISIBLE_GPUS)
    if given is None:
        return [str(number) for number, _ in enumerate(_DRIVER.glob("*"))]
    names = [one.strip() for one in given.split(",")]
    end = next((at for at, name in enumerate(names) if name in ("", "-1")), len(names))
    return names[:end]


def lease(count: int, given_up: Callable[[], bool]) -> Lease:
    """Wait until so many GPUs are free, and take them.

    Args:
        count: how many.
        given_up: says whether it is to wait no longer.

    Returns:
        The lease; one of none when it was given up.

    Raises:
        LaunchError: there are not so many, or the locks cannot be made.
    """
    names = visible_gpus()
    if len(names) < count:
        raise LaunchError(f"{count} GPUs are wanted; this machine shows {len(names)}")
    folder = _folder()
    waits = False
    while not given_up():
        taken = _take(folder, names, count)
        if taken is not None:
            return taken
        if not waits:
            _log.warning("waiting for %d of the GPUs %s to be free", count, ", ".join(names))
        waits = True
        time.sleep(_LOOK)
    return NO_GPUS


def _take(folder: Path, names: Sequence[str], count: int) -> Lease | None:
    """Take the first that are free; None, and none is held, where they are too few."""
    found = Lease([], [])
    for name in names:
        if len(found.names) == count:
            break
        path = folder / re.sub(r"[^\w.-]", "_", name)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            found.close()
            raise LaunchError(f"{path}: cannot be made: {error.strerror}") from error
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
    """Return the folder of this machine's locks; a home may be shared by several machines.

    Raises:
        LaunchError: it is another user's, or cannot be made.
    """
    folder = Path(tempfile.gettempdir(), f"vinedresser-gpus-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as error:
        raise LaunchError(f"{folder}: cannot be made: {error.strerror}") from error
    if owner != os.getuid():
        raise LaunchError(f"{folder}: belongs to another user; remove it")
    return folder
