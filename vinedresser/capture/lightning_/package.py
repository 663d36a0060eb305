"""The installed Lightning package, of which there are two distributions."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["CALLBACK", "VERSION"]


def _package() -> Any:
    """Return the package that the program has imported, else the installed one."""
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = next((name for name in names if name in sys.modules), None)
    if loaded is None:
        loaded = names[0] if find_spec("lightning") is not None else names[1]
    return import_module(loaded)


CALLBACK: Any = _package().Callback
VERSION: str = _package().__version__
