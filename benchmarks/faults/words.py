"""Words with an optional number, such as ``normal:0.05``, and errors that name the key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vinedresser.errors import ConfigError, did_you_mean

__all__ = ["check_keys", "known_word", "number", "split_word", "whole"]


def known_word(word: object, known: Iterable[str], where: str, what: str) -> str:
    """Return a word from a list.

    Args:
        word: word to check.
        known: valid words.
        where: case and key, the prefix of the message.
        what: kind of word, such as "activation".

    Raises:
        ConfigError: The word is not in the list.
    """
    words = list(known)
    if not isinstance(word, str) or word not in words:
        near = did_you_mean(str(word), words) or f"; must be one of {', '.join(words)}"
        raise ConfigError(f"{where}: unknown {what} {word!r}{near}")
    return word


def check_keys(table: object, known: Iterable[str], where: str) -> dict[str, Any]:
    """Return a table with only known keys.

    Raises:
        ConfigError: The value is no table, or has an unknown key.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    for key in table:
        known_word(key, known, where, "key")
    return dict(table)


def number(value: object, where: str) -> float:
    """Return a number, including text such as ``1e-3``, which YAML does not read as a number.

    Raises:
        ConfigError: The value is no number.
    """
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError(value)
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: must be a number, not {value!r}") from error


def whole(value: object, where: str, least: int = 1) -> int:
    """Return an integer.

    Raises:
        ConfigError: The value is no integer, or is below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{where}: must be an integer of at least {least}, not {value!r}")
    return value


def split_word(text: object, where: str) -> tuple[str, float | None]:
    """Split ``word`` or ``word:number``.

    Raises:
        ConfigError: The value is no text, or the part after the colon is no number.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{where}: must be a word, not {text!r}")
    word, colon, rest = text.partition(":")
    return word, number(rest, where) if colon else None
