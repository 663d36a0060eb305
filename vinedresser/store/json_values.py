"""Checking JSON against annotated types, and strict JSON output (standard library only)."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Literal

__all__ = ["check_time", "checker", "known_fields", "shown", "strict_json"]

# The end of the year 9999, in seconds since the epoch: what calendars can still show.
_LAST_TIME = 253402300799.0

# Name, check, and name of the type of a field.
_Check = tuple[str, Callable[[Any], bool], str]
_CHECKS: dict[Any, tuple[_Check, ...]] = {}


def known_fields(kind: type[Any], document: Any) -> dict[str, Any]:
    """Return the values of a JSON object for the fields of a dataclass, without other keys.

    Args:
        kind: the dataclass; see `checker` for its annotations.
        document: result of `json.loads`.

    Raises:
        TypeError: it is not an object, or a value has the wrong type.
    """
    if not isinstance(document, dict):
        raise TypeError(f"{shown(document)} is not a JSON object")
    found = {}
    for key, fits, name in _checks(kind):
        if key not in document:
            continue
        value = document[key]
        if not fits(value):
            raise TypeError(f"{key} is {shown(value)}, which is not {name}")
        found[key] = value
    return found


def check_time(name: str, value: float) -> None:
    """Check that a value is a time in seconds since the epoch.

    Args:
        name: name of the field, for the message.
        value: the value.

    Raises:
        ValueError: it is NaN, infinite, negative, or after the year 9999.
    """
    if not 0 <= value <= _LAST_TIME:
        raise ValueError(f"{name} is {value}, which is not a time in seconds since the epoch")


@cache
def checker(hint: Any) -> Callable[[Any], bool]:
    """Return a function that checks whether a JSON value has an annotated type.

    Args:
        hint: a plain JSON type, a list or dict of them, a literal or a union; `Any` fits always. An
            integer is also a float; a boolean is neither.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda _: True
    if origin is Literal:
        return lambda value: value in arguments
    if origin in (typing.Union, types.UnionType):
        checks = [checker(one) for one in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is dict:
        fits = checker(arguments[1])
        return lambda value: isinstance(value, dict) and all(map(fits, value.values()))
    if origin is list:
        return _list_checker(arguments[0])
    kinds = (int, float) if hint is float else (hint,)
    return lambda value: type(value) in kinds


def _list_checker(hint: Any) -> Callable[[Any], bool]:
    if hint in (int, str, bool):
        # Faster than a call per entry.
        allowed = frozenset([hint])
        return lambda value: isinstance(value, list) and allowed.issuperset(map(type, value))
    fits = checker(hint)
    return lambda value: isinstance(value, list) and all(map(fits, value))


def shown(value: object) -> str:
    """Return a value as text for a message, abbreviated."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def strict_json(value: Any) -> Any:
    """Return a value in which numbers that JSON lacks, such as NaN, are strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: strict_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(entry) for entry in value]
    return value


def _checks(kind: type[Any]) -> tuple[_Check, ...]:
    """Return the checks of a dataclass's fields, cached because resolving types is slow."""
    if kind not in _CHECKS:
        hints = typing.get_type_hints(kind)
        _CHECKS[kind] = tuple(
            (one.name, checker(hint), getattr(hint, "__name__", str(hint)))
            for one in fields(kind)
            for hint in (hints[one.name],)
        )
    return _CHECKS[kind]
