"""A directory with little space."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Limit a directory, so that an object larger than ``size`` does not fit.

    If the user may mount one, a file system of this size is used. Otherwise the process's limit of
    file sizes is lowered, which the kernel reports in a similar way.

    Args:
        folder: an existing, empty directory.
        size: size in bytes; a multiple of the page size.

    Yields:
        The directory.
    """
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
    mounted = subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False)
    if mounted.returncode == 0:
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield folder
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
