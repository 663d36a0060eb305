"""Names of runs, which become names of directories and parts of keys."""

from __future__ import annotations

import os
import unicodedata

__all__ = ["name_at", "name_fault"]

# Bytes; file systems allow 255, and an attempt or an additional run appends to the name.
_LONGEST = 200


def name_at(location: str) -> str:
    """Return the name of a run: that of its folder, since a copy has the record of its original."""
    return os.path.basename(os.path.abspath(location))


def name_fault(name: str) -> str:
    """Return what prevents a name from being that of a run; "" for a valid name.

    A name is one component of a path: nothing may lead out of its store, hide the directory, or be
    invisible in a terminal.
    """
    if not name:
        return "empty; give a name"
    if "/" in name or name.startswith("."):
        return f"{name!r} is not a valid directory name; it must not contain '/' or begin with '.'"
    if any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in name):
        return f"{name!r} is not a valid directory name; it must not contain control characters"
    if len(name.encode()) > _LONGEST:
        return f"{name[:20]!r}... is longer than {_LONGEST} bytes; choose a shorter name"
    return ""
