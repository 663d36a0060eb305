"""Amounts, shares, times and sizes as people write them: 12, "10%", "90 min", "20 GB"."""

from __future__ import annotations

import math
import re
from decimal import Decimal

__all__ = ["parse_amount", "parse_size", "parse_time", "seconds_of"]

_SHARE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*%", re.ASCII)
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|m|min|h|d)", re.ASCII)
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([kMGT])(i?)B", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_amount(given: object) -> int | Decimal:
    """Return a number above 0, or a share between 0 and 1 of a text such as "10%".

    Raises:
        ValueError: it is neither.
    """
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    match = _SHARE.fullmatch(given.strip()) if isinstance(given, str) else None
    share = Decimal(match[1]) / 100 if match else Decimal(0)
    if not 0 < share < 1:
        raise ValueError(f'must be a number above 0 or a share such as "10%", not {given!r}')
    return share


def parse_time(given: str) -> float:
    """Return the seconds of a text such as "90 s", "30 min", "24 h" or "7 d".

    Raises:
        ValueError: it is something else, or 0.
    """
    match = _TIME.fullmatch(given.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not seconds:
        raise ValueError(f'must be a time such as "90 s", "30 min", "24 h" or "7 d", not {given!r}')
    return seconds


def seconds_of(key: str, given: float | str | None) -> float | None:
    """Return a duration of a setting in seconds; None if it is not given.

    Args:
        key: name of the setting.
        given: a number of seconds, or a text; see `parse_time`.

    Raises:
        ValueError: it is not a duration above 0; the message names the key.
    """
    if given is None:
        return None
    if isinstance(given, str):
        try:
            return parse_time(given)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
    if not 0 < given < math.inf:
        raise ValueError(f"{key}: must be above 0 seconds, not {given}")
    return float(given)


def parse_size(given: object) -> int:
    """Return the bytes of a text such as "500 MB", "20GB" (powers of 1000) or "8 GiB" (of 1024).

    Raises:
        ValueError: it is something else, or less than a byte.
    """
    match = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    size = 0
    if match:
        size = int(Decimal(match[1]) * (1024 if match[3] else 1000) ** ("kMGT".index(match[2]) + 1))
    if not size:
        raise ValueError(f'must be a size such as "500 MB" or "20 GB", not {given!r}')
    return size
