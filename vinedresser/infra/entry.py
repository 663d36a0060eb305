"""A training that is a function: ``python -m vinedresser.infra.entry MODULE:FUNCTION NAME=JSON …``.

The module is looked for in the working directory first, as Python does for its own ``-m``. Each
parameter is passed by name, with dashes as underscores and its value as JSON.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["main", "parameters_as_arguments"]


def parameters_as_arguments(parameters: dict[str, Any]) -> list[str]:
    """Return parameters as `main` takes them."""
    return [f"{name}={json.dumps(value)}" for name, value in parameters.items()]


def main(arguments: list[str]) -> None:
    """Call a function with parameters.

    Args:
        arguments: the function, and the parameters as `parameters_as_arguments` has them.

    Raises:
        SystemExit: there is no such function, or it does not take these parameters; with what is
            wrong.
    """
    target, *settings = arguments
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    given = dict(setting.split("=", 1) for setting in settings)
    parameters = {name.replace("-", "_"): json.loads(value) for name, value in given.items()}
    function = _function(target)
    try:
        inspect.signature(function).bind(**parameters)
    except TypeError as error:
        takes = inspect.signature(function)
        sys.exit(f"{target}{takes}: cannot be called with {', '.join(parameters)}: {error}")
    sys.argv = [target]
    function(**parameters)


def _function(target: str) -> Callable[..., object]:
    """Return what ``MODULE:FUNCTION`` names."""
    name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        sys.exit(f"{target}: no module {error.name} in {os.getcwd()}, and none is installed")
    function: Callable[..., object] | None = getattr(module, attribute, None)
    if not callable(function):
        sys.exit(f"{target}: {module.__file__} has no function {attribute}")
    return function


if __name__ == "__main__":
    main(sys.argv[1:])
