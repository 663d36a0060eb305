"""Checking JSON against annotated types, and strict JSON output (standard library only)."""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Literal

__all__ = [
    "DAMAGE",
    "check_time",
    "checker",
    "known_fields",
    "parse_json",
    "shown",
    "strict_json",
]

# What code raises that reads values of another type, shape or size than it was written for.
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

# The end of the year 9999, in seconds since the epoch: what calendars can still show.
_LAST_TIME = 253402300799.0

# Integers of fields: those of 64 bits, with and without a sign.
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**64 - 1
_BEYOND_FLOAT = 2**1023
# Numbers with fewer digits are surely not beyond the largest float.
_LONG_NUMBER = re.compile(rb"\d{300}")
# Levels of lists and objects: many for data, few for functions that walk them recursively.
_MOST_LEVELS = 200

# Name, check, and name of the type of a field.
_Check = tuple[str, Callable[[Any], bool], str]
_CHECKS: dict[Any, tuple[_Check, ...]] = {}


def parse_json(text: bytes | str) -> Any:
    """Return the value of JSON from anybody.

    Args:
        text: JSON, with ``NaN`` and ``Infinity`` as Python writes them.

    Raises:
        ValueError: it is not JSON, has an integer that no float can hold, or more than 200 levels
            of lists and objects.
    """
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        value = json.loads(text, parse_int=_integer if _LONG_NUMBER.search(content) else None)
    except RecursionError as error:
        raise ValueError("it has too many levels of lists and objects") from error
    if max(content.count(b"["), content.count(b"{")) * 2 > _MOST_LEVELS:
        _check_levels(value)
    return value


def _integer(digits: str) -> int:
    value = int(digits)
    try:
        float(value)
    except OverflowError as error:
        raise ValueError(f"a number of {len(digits)} digits is too large") from error
    return value


def _check_levels(value: Any) -> None:
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [
            inner
            for one in level
            if isinstance(one, list | dict)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, list | dict)
        ]
        if not level:
            return
    raise ValueError(f"it has more than {_MOST_LEVELS} levels of lists and objects")


def known_fields(kind: type[Any], document: Any) -> dict[str, Any]:
    """Return the values of a JSON object for the fields of a dataclass, without other keys.

    Args:
        kind: the dataclass; see `checker` for its annotations.
        document: result of `parse_json`.

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
        checks = [checker(argument) for argument in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is dict:
        fits = checker(arguments[1])
        return lambda value: isinstance(value, dict) and all(map(fits, value.values()))
    if origin is list:
        return _list_checker(arguments[0])
    return _PLAIN.get(hint) or (lambda value: type(value) is hint)


def _list_checker(hint: Any) -> Callable[[Any], bool]:
    if hint in (int, str, bool):
        # Faster than a call per entry.
        allowed = frozenset([hint])
        bounded: Callable[[list[Any]], bool] = _are_bounded if hint is int else lambda _: True
        return lambda value: (
            isinstance(value, list) and allowed.issuperset(map(type, value)) and bounded(value)
        )
    fits = checker(hint)
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _is_integer(value: Any) -> bool:
    return type(value) is int and _LEAST_INTEGER <= value <= _MOST_INTEGER


def _are_bounded(values: list[int]) -> bool:
    return not values or (min(values) >= _LEAST_INTEGER and max(values) <= _MOST_INTEGER)


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < _BEYOND_FLOAT)


_PLAIN: dict[Any, Callable[[Any], bool]] = {int: _is_integer, float: _is_number}


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
            (field.name, checker(hint), getattr(hint, "__name__", str(hint)))
            for field in fields(kind)
            for hint in (hints[field.name],)
        )
    return _CHECKS[kind]
