"""Runs a training function: ``python -m vinedresser.infra.entry MODULE:FUNCTION NAME=JSON …``.

The working directory comes first on the module path, as with ``python -m``. Parameters are passed
by name, with dashes replaced by underscores, and their values are JSON.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.plain_text import visible

__all__ = ["function_here", "function_named", "is_reference", "main", "parameters_as_arguments"]

_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_reference(text: str) -> bool:
    """Return whether a text has the form ``module:function``."""
    return _REFERENCE.fullmatch(text) is not None


def parameters_as_arguments(parameters: dict[str, Any]) -> list[str]:
    """Return parameters in the form that `main` expects."""
    return [f"{name}={json.dumps(value)}" for name, value in parameters.items()]


def main(arguments: list[str]) -> None:
    """Call a function with parameters.

    Args:
        arguments: the function, followed by the result of `parameters_as_arguments`.

    Raises:
        SystemExit: the function does not exist or does not accept these parameters.
    """
    target, *settings = arguments
    given = dict(setting.split("=", 1) for setting in settings)
    parameters = {name.replace("-", "_"): json.loads(value) for name, value in given.items()}
    try:
        function = function_here(target)
    except ConfigError as error:
        sys.exit(str(error))
    try:
        inspect.signature(function).bind(**parameters)
    except TypeError as error:
        takes = inspect.signature(function)
        called = f"{target}{takes}: cannot be called with {', '.join(parameters)}: {error}"
        sys.exit(visible(called))
    sys.argv = [target]
    function(**parameters)


def function_here(target: str) -> Callable[..., Any]:
    """Return a function as `function_named` does; its module may be in the working directory.

    Raises:
        ConfigError: the module or the function does not exist.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return function_named(target)


def function_named(target: str) -> Callable[..., Any]:
    """Return the function that ``MODULE:FUNCTION`` names.

    Raises:
        ConfigError: the module or the function does not exist.
    """
    name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"{target}: no module {error.name} in {os.getcwd()} or installed"
        ) from error
    function: Callable[..., Any] | None = getattr(module, attribute, None)
    if not callable(function):
        near = did_you_mean(attribute, vars(module))
        raise ConfigError(f"{target}: {module.__file__} has no function {attribute}{near}")
    return function


if __name__ == "__main__":
    main(sys.argv[1:])
