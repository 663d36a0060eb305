"""The processes that a process has started, by their programs."""

from __future__ import annotations

import psutil

__all__ = ["children_of"]


def children_of(module: str, owner: int | None = None) -> list[psutil.Process]:
    """Return the living children of a process that run a Python module.

    Args:
        module: the name of the module.
        owner: the process; None: this one.
    """
    found = []
    for child in psutil.Process(owner).children():
        try:
            if module in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            # It has ended, though nobody may have waited for it yet.
            continue
    return found
