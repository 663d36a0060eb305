"""The line of the user's script that runs now."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType

__all__ = ["line_of", "script_line"]

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = ("site-packages", "dist-packages", "lib/python3")


def script_line() -> str:
    """Return the innermost line of the script, such as "train.py:12"; "" if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _of_library(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def line_of(function: object) -> str:
    """Return the line at which a function of the script begins; "" if it is none of the script."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or _of_library(code.co_filename):
        return ""
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def _of_library(file: str) -> bool:
    return file.startswith((_PACKAGE, "<")) or any(part in file for part in _LIBRARIES)
