"""Checks of this machine: the user's state folder, space, limits, the clock, GPUs."""

from __future__ import annotations

import os
import resource
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import vinedresser
from vinedresser.errors import LaunchError
from vinedresser.infra.catalog.state_folder import state_folder
from vinedresser.infra.supervise.gpus import VISIBLE_GPUS, gpu_models, lease, visible_gpus
from vinedresser.store.spool import spool_root
from vinedresser.tasks.health.check import Check, unless_it_fails

__all__ = ["machine_checks", "space_check", "write_check"]

_AREA = "machine"
# Free bytes below which a run of some hours may fill the disk, or anything may.
_LOW, _FULL = 2 << 30, 256 << 20
_FEWEST_FILES = 1000
# Open files of a sweep of ten trials, with their servers.
_DESCRIPTORS = 1024
# What containers get by default; workers of torch's DataLoader pass batches through it.
_SHARED, _SHARED_BYTES = Path("/dev/shm"), 64 << 20  # noqa: S108 - it is only looked at
# Seconds by which clocks may differ before times of runs and certificates are wrong.
_SKEW = 5.0
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def machine_checks() -> Iterator[Check]:
    """Yield the checks of this machine."""
    yield from unless_it_fails(_AREA, "state", _state)
    yield from unless_it_fails(_AREA, "space", _space)
    yield from _limits()
    yield _clock()
    yield from unless_it_fails(_AREA, "GPUs", _gpus)


def space_check(subject: str, place: str | os.PathLike[str], area: str = _AREA) -> Check:
    """Return how much space is free where a folder is, or will be.

    Args:
        subject: what it is for.
        area: see `Check`.

    Raises:
        OSError: it cannot be looked at.
    """
    there = next(one for one in (Path(place), *Path(place).absolute().parents) if one.exists())
    found = os.statvfs(there)
    free = found.f_bavail * found.f_frsize
    # Some file systems count no files.
    files = found.f_favail if found.f_files else _FEWEST_FILES
    seen = f"{free / 2**30:,.1f} GiB free in {place}"
    if free < _FULL or files < _FEWEST_FILES:
        seen += f", and {files:,} more files fit" if files < _FEWEST_FILES else ""
        return Check(area, subject, "problem", seen, "make room, or choose another place")
    if free < _LOW:
        return Check(area, subject, "warning", seen, "make room before long runs")
    return Check(area, subject, "ok", seen)


def write_check(subject: str, folder: Path, area: str = _AREA) -> Check:
    """Return whether files can be made in a folder, and whether its clock is this machine's.

    It makes a file without a name there, which is gone at once.

    Args:
        subject: what the folder is for.
        folder: an existing folder.
        area: see `Check`.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
            file.flush()
            skew = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError as error:
        seen = f"{folder}: no file can be made: {error.strerror}"
        return Check(area, subject, "problem", seen, "choose a folder of yours")
    if abs(skew) > _SKEW:
        seen = f"{folder}: the clock of its disk is {abs(skew):,.0f} s "
        seen += "ahead" if skew > 0 else "behind"
        return Check(area, subject, "warning", seen, "synchronise the clocks (NTP)")
    return Check(area, subject, "ok", f"{folder} can be written to")


def _state() -> Iterator[Check]:
    folder = state_folder()
    if not folder.exists():
        yield Check(_AREA, "state", "ok", f"{folder} will be made")
        return
    yield write_check("state", folder)
    found = folder.stat()
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or found.st_uid != os.getuid():
        # It says which processes may be ended.
        seen = f"{folder}: other users may change it, and what is in it is obeyed"
        remedy = f"look at what is in it, then chown and chmod 700 {folder}"
        yield Check(_AREA, "state", "problem", seen, remedy)
    # The servers' notes have their passwords.
    for note in folder.glob("*.json"):
        if note.stat().st_mode & _OTHERS or note.stat().st_uid != os.getuid():
            seen = f"{note}: other users may read or change it, and it has a password"
            remedy = f"vinedresser down; rm {note}; vinedresser up"
            yield Check(_AREA, "state", "problem", seen, remedy)


def _space() -> Iterator[Check]:
    try:
        yield space_check("temporary files", tempfile.gettempdir())
    except FileNotFoundError as error:
        yield Check(_AREA, "temporary files", "problem", str(error.strerror), "set TMPDIR")
    yield space_check("uploads", spool_root())


def _limits() -> Iterator[Check]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS:
        seen = f"a process may open {soft} files, fewer than a sweep needs"
        yield Check(_AREA, "open files", "warning", seen, "ulimit -n 4096")
    else:
        yield Check(_AREA, "open files", "ok", f"a process may open {soft:,}")
    if _SHARED.is_dir():
        found = os.statvfs(_SHARED)
        size = found.f_blocks * found.f_frsize
        if size <= _SHARED_BYTES:
            seen = f"{_SHARED} has {size >> 20} MiB; workers of a DataLoader share batches there"
            remedy = "start the container with --shm-size=2g"
            yield Check(_AREA, "shared memory", "warning", seen, remedy)
        else:
            yield Check(_AREA, "shared memory", "ok", f"{size / 2**30:,.1f} GiB in {_SHARED}")


def _clock() -> Check:
    """Return whether the clock is behind the time at which vinedresser was installed."""
    behind = os.stat(vinedresser.__file__).st_mtime - time.time()
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    if behind > _SKEW:
        seen = f"it is {now}, {behind:,.0f} s before vinedresser was installed"
        return Check(_AREA, "clock", "problem", seen, "set the clock (NTP)")
    return Check(_AREA, "clock", "ok", now)


def _gpus() -> Iterator[Check]:
    models, named = gpu_models(), visible_gpus()
    if not models:
        seen = "NVIDIA's driver knows none"
        if named:
            seen += f", and {VISIBLE_GPUS} names {', '.join(named)}"
            yield Check(_AREA, "GPUs", "warning", seen, f"unset {VISIBLE_GPUS}")
        else:
            yield Check(_AREA, "GPUs", "ok", seen)
        return
    yield from (troubles := [*_gpu_troubles(models, named)])
    if not troubles:
        yield Check(_AREA, "GPUs", "ok", ", ".join(models))


def _gpu_troubles(models: Sequence[str], named: Sequence[str]) -> Iterator[Check]:
    """Yield why a training may not use the GPUs.

    Args:
        named: the names of those that this process may use.
    """
    unknown = [name for name in named if name.isdecimal() and int(name) >= len(models)]
    if unknown:
        seen = f"{VISIBLE_GPUS} names {', '.join(unknown)}; there are {len(models)}"
        yield Check(_AREA, "GPUs", "problem", seen, f"correct {VISIBLE_GPUS}")
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    if torch.endswith("+cpu"):
        seen = f"torch {torch} uses none of {len(models)}"
        yield Check(_AREA, "GPUs", "warning", seen, "install torch built for CUDA")
    closed = [path for path in Path("/dev").glob("nvidia[0-9]*") if not os.access(path, os.R_OK)]
    for path in closed:
        seen = f"{path}: not allowed for this user"
        yield Check(_AREA, "GPUs", "problem", seen, "join the group that owns it")
    try:
        lease(0, lambda: False).close()
    except LaunchError as error:
        yield Check(_AREA, "GPUs", "problem", str(error), "remove it")
