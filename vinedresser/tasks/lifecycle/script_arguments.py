"""The arguments of an unchanged script as hyperparameters."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["parameters_of_arguments"]

# Also hydra's: ``model.depth=3``, ``+data.size=4``.
_ASSIGNED = re.compile(r"\+{0,2}(?P<name>[A-Za-z_][\w./@-]*)=(?P<value>.*)", re.DOTALL)


def parameters_of_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the hyperparameters that a script's arguments give.

    ``--lr 0.1``, ``--lr=0.1``, ``-b 32`` and ``model.depth=3`` give a name a value, ``--fast``
    gives true. Several values become a list, of an option if they are all numbers or all text; the
    arguments without a name are ``arguments``. Finite numbers, true and false have their JSON type.

    Args:
        arguments: those behind the script.
    """
    found: dict[str, list[Any]] = {}
    option = ""
    for argument in arguments:
        given = _ASSIGNED.fullmatch(argument.lstrip("-"))
        is_option = argument.startswith("-") and argument != "-" and not _is_number(argument)
        if given and (is_option or not option):
            found.setdefault(given["name"], []).append(_value(given["value"]))
            option = ""
        elif is_option:
            option = argument.lstrip("-")
            found.setdefault(option or "arguments", [])
        else:
            value = _value(argument)
            before = found.get(option, [])[-1:]
            if before and isinstance(before[0], str) is not isinstance(value, str):
                option = ""
            found.setdefault(option or "arguments", []).append(value)
    return {name: _joined(values) for name, values in found.items()}


def _joined(values: list[Any]) -> Any:
    if not values:
        return True
    return values[0] if len(values) == 1 else values


def _is_number(argument: str) -> bool:
    return not isinstance(_value(argument), str)


def _value(text: str) -> Any:
    """Return a finite number, true or false as such, and all else as text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return text
    return number if math.isfinite(number) else text
