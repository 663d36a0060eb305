"""Builds dataclasses from TOML files, with one clear message per error.

Pydantic checks a table against its dataclass; this module turns pydantic's errors into ``FILE:
KEY: problem; expected value``.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.masking import masked_arguments, masked_code, masked_value

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = ["build", "check_model_name", "load_toml", "parse_toml", "masked_toml"]

T = TypeVar("T")

# Of a number, by the names that pydantic gives to them.
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def check_model_name(register: str) -> None:
    """Check the name of a registered model, the value of a key ``register``.

    Raises:
        ValueError: MLflow does not accept it.
    """
    if not register or {*register} & {*"/:"}:
        raise ValueError(f"register: must be a name without / and :, not {register!r}")


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: the file is missing, unreadable, or not valid TOML (with the line).
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_toml(content, path)


def parse_toml(content: bytes, path: Path) -> dict[str, Any]:
    """Return what a TOML file has.

    Args:
        path: the file, for messages.

    Raises:
        ConfigError: it is not valid TOML (with the line).
    """
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def build(kind: type[T], table: object, where: str) -> T:
    """Build a dataclass from a table.

    Args:
        table: the table from the file.
        where: file and key of the table, such as ``a.toml: run``, as a prefix for messages.

    Raises:
        ConfigError: an unknown key, a wrong type or an invalid value.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    known = [entry.name for entry in fields(kind)]  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for key in table:
        if key not in known:
            near = did_you_mean(str(key), known) or f"; the keys are {', '.join(known)}"
            raise ConfigError(f"{where}.{key}: no such key{near}")
        # It passes every comparison by which pydantic checks a range.
        if isinstance(table[key], float) and math.isnan(table[key]):
            raise ConfigError(f"{where}.{key}: must be a number, not nan")
        # Pydantic takes true for 1.
        given = table[key] if isinstance(table[key], list) else [table[key]]
        flag = next((one for one in given if isinstance(one, bool)), None)
        if flag is not None and not _takes_bool(hints[key]):
            raise ConfigError(f"{where}.{key}: must not be {str(flag).lower()}")

    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(dict(table))
    except ValidationError as error:
        raise ConfigError(_message(error.errors(), table, where)) from error


def masked_toml(document: Mapping[str, Any]) -> str:
    """Return the contents of a TOML file as one, with what looks like a secret masked.

    Args:
        document: its tables, as from `load_toml`.
    """
    return "\n".join(_tables((), _masked("", document)))


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _masked(key, one) for key, one in value.items()}
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        arguments = masked_arguments([masked_value(name, one) for one in value])
        return list(map(masked_code, arguments))
    masked = masked_value(name, value)
    # The value may be settings itself, such as "host=db password=...".
    return masked_code(masked) if isinstance(masked, str) else masked


def _tables(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table, those of its tables last."""
    plain = {key: one for key, one in table.items() if not isinstance(one, Mapping)}
    if path and (plain or not table):
        yield f"[{'.'.join(map(_key, path))}]"
    for key, one in plain.items():
        yield f"{_key(key)} = {_literal(one)}"
    if plain or not table:
        yield ""
    for key, one in table.items():
        if isinstance(one, Mapping):
            yield from _tables((*path, key), one)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _literal(key)


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {_literal(one)}' for key, one in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str | bool):
        # TOML knows the escapes of JSON, and wants one more character escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def _takes_bool(hint: object) -> bool:
    """Return whether a value of a type, or an element of its list, may be true or false."""
    if get_origin(hint) in (dict, Mapping):
        return False
    alike = hint in (bool, Any, object) or isinstance(hint, bool)
    return alike or any(map(_takes_bool, get_args(hint)))


def _message(errors: Sequence[ErrorDetails], table: Mapping[str, Any], where: str) -> str:
    """Return a message for pydantic's first error."""
    error = errors[0]
    top, *rest = error["loc"] or ("",)
    given = table.get(str(top))
    if rest and isinstance(rest[0], str) and not isinstance(given, Mapping):
        # Of several types, pydantic reports an error for each, under the name of the type.
        each = dict.fromkeys(one["msg"].lower() for one in errors if one["loc"][:1] == (top,))
        return f"{where}.{top}: {' or '.join(each)}, not {given!r}"
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] in ("missing", "missing_argument"):
        return f"{where}.{key}: is missing"
    if error["type"] == "unexpected_keyword_argument":
        return f"{where}.{key}: no such key"
    cause = error.get("ctx", {}).get("error")
    if cause is not None and not key:
        return f"{where}: {cause}"
    said = error["msg"].removeprefix("Value error, ")
    said = said[0].lower() + said[1:]
    for name, words in _BOUNDS.items():
        if (bound := error.get("ctx", {}).get(name)) is not None:
            said = "must be finite" if bound == math.inf else f"must be {words} {bound:g}"
    return f"{where}.{key}: {said}, not {error['input']!r}"
