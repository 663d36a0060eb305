"""Names of runs, which become names of directories and parts of keys."""

from __future__ import annotations

import unicodedata

# Bytes; file systems allow 255, and an attempt or an additional run appends to the name.
_LONGEST = 200


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
