"""The user's function that ``--factory`` names."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vinedresser.errors import ConfigError, VinedresserError
from vinedresser.infra.entry import function_here, is_reference
from vinedresser.store.json_values import DAMAGE

__all__ = ["referenced", "running_users_code"]


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
    return function_here(reference)


@contextmanager
def running_users_code(whose: str) -> Iterator[None]:
    """Turn an error of the user's code, run with a recorded batch, into one sentence.

    Args:
        whose: what has built the code, for messages.

    Raises:
        ConfigError: the code failed; the message has the place.
    """
    try:
        yield
    except VinedresserError:
        raise
    except (*DAMAGE, AssertionError, RuntimeError) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{whose}: cannot be run with the recorded batch: {type(error).__name__}: {reason} "
            f"({place.filename}, line {place.lineno})"
        ) from error
