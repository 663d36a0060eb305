"""Noticing that a script is about to write a file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

__all__ = ["before_writes"]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Events of `sys.addaudithook` whose first argument is the path that changes.
_CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.mkdir", "shutil.rmtree")


def before_writes(listener: Callable[[str], None]) -> None:
    """Call a listener with the path before this process writes a file, or makes or removes one.

    Files in the temporary directory are not the script's, nor are devices, unless it lies or runs
    there itself. What libraries write without Python is not noticed, except by `torch.save`.

    Args:
        listener: called in the thread that writes.
    """
    own, temporary = os.getpid(), tempfile.gettempdir()
    ours = [os.getcwd(), os.path.dirname(os.path.abspath(sys.argv[0]))]
    # Python's own caches of modules that are imported later.
    sys.dont_write_bytecode = True

    def told(path: Any) -> None:
        if os.getpid() != own or isinstance(path, int):
            return
        place = os.path.abspath(os.fsdecode(path))
        if any(_inside(place, one) for one in ours) or not any(
            _inside(place, one) for one in (temporary, "/dev", "/proc")
        ):
            listener(os.path.relpath(place))

    def audited(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITING:
                told(path)
        elif event in _CHANGING:
            told(args[0])

    sys.addaudithook(audited)
    save = torch.save

    def saving(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, str | Path):
            told(f)
        return save(obj, f, *args, **kwargs)

    torch.save = saving


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
