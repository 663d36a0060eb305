"""Words with a number behind them, such as ``normal:0.05``, and errors that name their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vinedresser.errors import ConfigError, did_you_mean

__all__ = ["check_keys", "known_word", "number", "split_word", "whole"]


def known_word(word: object, known: Iterable[str], where: str, what: str) -> str:
    """Return a word that is one of some.

    Args:
        word: as it was read.
        known: what would be right.
        where: the case and the key, to begin the message with.
        what: what it is the name of, such as "activation".

    Raises:
        ConfigError: it is none of them.
    """
    words = list(known)
    if not isinstance(word, str) or word not in words:
        near = did_you_mean(str(word), words) or f"; there are {', '.join(words)}"
        raise ConfigError(f"{where}: no {what} {word!r}{near}")
    return word


def check_keys(table: object, known: Iterable[str], where: str) -> dict[str, Any]:
    """Return a table all of whose keys are known.

    Raises:
        ConfigError: it is no table, or has another key.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: must be a table, not {table!r}")
    for key in table:
        known_word(key, known, where, "key")
    return dict(table)


def number(value: object, where: str) -> float:
    """Return a number, also where YAML read it as text, as it does ``1e-3``.

    Raises:
        ConfigError: it is none.
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
        ConfigError: it is none, or is below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{where}: must be an integer of at least {least}, not {value!r}")
    return value


def split_word(text: object, where: str) -> tuple[str, float | None]:
    """Take ``word`` or ``word:number`` apart.

    Raises:
        ConfigError: it is no text, or what follows the colon is no number.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{where}: must be a word, not {text!r}")
    word, colon, rest = text.partition(":")
    return word, number(rest, where) if colon else None
