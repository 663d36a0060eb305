"""Libraries of the Python that started a run, for one in which vinedresser is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from vinedresser.store.records import ATTACH_VARIABLE

__all__ = ["check_library", "import_library"]


def check_library(package: str) -> None:
    """Check that a package can be imported when it is needed, without importing it.

    Raises:
        ImportError: neither this Python nor the one that started the run has it.
    """
    directory = os.environ.get(ATTACH_VARIABLE)
    beside = directory is not None and Path(directory, package).is_dir()
    if not beside and importlib.util.find_spec(package) is None:
        raise ImportError(f"No module named {package!r}", name=package)


def import_library(module: str) -> ModuleType:
    """Import a module of this Python, or else of the one that started the run.

    The script can import it from then on, too, so do so only when the training ends.

    Raises:
        ImportError: neither has it, or it does not fit this version of Python.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        directory = os.environ.get(ATTACH_VARIABLE)
        if directory is None:
            raise
        sys.path.append(directory)
        try:
            return importlib.import_module(module)
        finally:
            sys.path.remove(directory)
