"""Validating JSON, and strict JSON output (standard library only)."""

from __future__ import annotations

import math
import types
import typing
from dataclasses import fields
from typing import Any, Literal

__all__ = ["known_fields", "strict_json"]

_HINTS: dict[Any, dict[str, Any]] = {}


def known_fields(kind: type[Any], document: Any) -> dict[str, Any]:
    """Return the values of a JSON object for the fields of a dataclass, without other keys.

    Args:
        kind: the dataclass; its annotations are plain JSON types, literals and unions of them.
        document: result of `json.loads`.

    Raises:
        TypeError: it is not an object, or a value has the wrong type.
    """
    if not isinstance(document, dict):
        raise TypeError(f"{_shown(document)} is not a JSON object")
    found = {key: document[key] for key in _hints(kind) if key in document}
    for key, value in found.items():
        hint = _hints(kind)[key]
        if not _fits(value, hint):
            name = getattr(hint, "__name__", str(hint))
            raise TypeError(f"{key} is {_shown(value)}, which is not {name}")
    return found


def strict_json(value: Any) -> Any:
    """Return a value in which numbers that JSON lacks, such as NaN, are strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: strict_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(entry) for entry in value]
    return value


def _hints(kind: type[Any]) -> dict[str, Any]:
    """Return the type of each field, cached because resolving it is slow."""
    if kind not in _HINTS:
        hints = typing.get_type_hints(kind)
        _HINTS[kind] = {entry.name: hints[entry.name] for entry in fields(kind)}
    return _HINTS[kind]


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a JSON value has an annotated type; an integer is also a float."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(one, arguments[1]) for one in value.values())
    if hint is float:
        return type(value) in (int, float)
    return hint is Any or type(value) is hint


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
