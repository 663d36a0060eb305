"""Commands of configuration files: which interpreter "python" is, and parameters as options."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["parameters_as_options", "resolved_command"]


def resolved_command(command: Sequence[str]) -> list[str]:
    """Return a command in which "python" is the interpreter that runs vinedresser.

    Args:
        command: program and arguments, at least the program.
    """
    program, *arguments = command
    return [sys.executable if program in ("python", "python3") else program, *arguments]


def parameters_as_options(parameters: Mapping[str, Any]) -> list[str]:
    """Return parameters as ``--name value``; True becomes ``--name``, and False nothing.

    A list becomes ``--name value value``.
    """
    options: list[str] = []
    for name, value in parameters.items():
        if value is True:
            options.append(f"--{name}")
        elif isinstance(value, list):
            options += [f"--{name}", *map(str, value)]
        elif value is not False:
            options += [f"--{name}", str(value)]
    return options
