"""What the records of a prepared run do not have: values that look like secrets.

They stay in the memory of the process that prepared the run, and go to its supervisor through a
file in memory without a name.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from vinedresser.errors import LaunchError
from vinedresser.store.records import LaunchRecord

__all__ = ["hold", "memory_file", "read_memory_file", "take", "with_values"]

# By the path of the run directory; removed when the run starts.
_HELD: dict[str, LaunchRecord] = {}


def hold(directory: str | os.PathLike[str], launch: LaunchRecord) -> None:
    """Keep the launch of a run if its record lacks values."""
    if launch.masked:
        _HELD[os.path.realpath(directory)] = launch


def take(directory: Path, stored: LaunchRecord) -> LaunchRecord:
    """Return the launch of a run with all values, which are no longer kept; see `with_values`.

    Raises:
        LaunchError: it lacks values that this process does not have.
    """
    launch = with_values(directory, stored)
    _HELD.pop(os.path.realpath(directory), None)
    return launch


def with_values(directory: Path, stored: LaunchRecord) -> LaunchRecord:
    """Return the launch of a run with all values.

    Raises:
        LaunchError: it lacks values that this process does not have.
    """
    held = _HELD.get(os.path.realpath(directory))
    if held is not None:
        return replace(stored, argv=held.argv, environment=held.environment)
    if stored.incomplete:
        raise LaunchError(
            f"{directory}: prepared by another process, with values that are not stored because "
            "they look like secrets; name their variables in run.environment_from"
        )
    return stored


def memory_file(launch: LaunchRecord) -> int:
    """Return the descriptor of a file in memory with the values of a launch, not inheritable."""
    values = {"argv": launch.argv, "environment": launch.environment}
    descriptor = os.memfd_create("launch", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        # Arguments that are not UTF-8 contain lone surrogates, which JSON escapes.
        json.dump(values, file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def read_memory_file(descriptor: int, stored: LaunchRecord) -> LaunchRecord:
    """Return a launch with the values in a file in memory, which is closed."""
    with os.fdopen(descriptor, encoding="utf-8") as file:
        return replace(stored, **json.load(file))
