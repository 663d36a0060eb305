"""The user's function that ``--factory`` names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.infra.entry import function_named, is_reference

__all__ = ["referenced"]


def referenced(reference: str, word: str = "FUNCTION") -> Callable[..., Any]:
    """Import a function.

    Args:
        reference: ``module:function``; the module is looked for in the working directory first.
        word: what the function is, for messages.

    Raises:
        ConfigError: the module or the function does not exist.
    """
    if not is_reference(reference):
        raise ConfigError(f"--factory: must be MODULE:{word}, not {reference!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return function_named(reference)
