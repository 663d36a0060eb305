"""Numbers, durations and lists as text for people."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["MINUS", "count", "decade", "duration", "evidence_rows", "number", "plain", "shortened"]

MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MOST_LISTED = 8


def number(value: float, digits: int = 4) -> str:
    """Return a number with at most ``digits`` significant digits, or as a power of ten."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    mantissa, exponent, power = f"{value:.{digits}g}".replace("-", MINUS).partition("e")
    if not exponent:
        return mantissa
    power = decade(int(power.replace(MINUS, "-")))
    return power if mantissa == "1" else f"{mantissa} \N{MULTIPLICATION SIGN} {power}"


def count(amount: int, noun: str) -> str:
    """Return an amount with its noun, such as "1 step" or "2 steps"."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def decade(power: int) -> str:
    """Return a power of ten as text, such as 10⁻³."""
    if power in (0, 1):
        return str(10**power)
    return "10" + str(power).translate(_SUPERSCRIPTS)


def duration(seconds: float) -> str:
    """Return a duration in its one or two largest units."""
    if seconds < 0.1:
        return f"{number(1000 * seconds, 2)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def shortened(text: str, most: int) -> str:
    """Return a text, cut to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def plain(value: object) -> str:
    """Return any JSON value as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "\N{EN DASH}"}[value]
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list | tuple):
        listed = ", ".join(plain(entry) for entry in value[:_MOST_LISTED])
        more = len(value) - _MOST_LISTED
        return f"{listed}, and {more} more" if more > 0 else listed or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(entry)}" for key, entry in value.items()) or "none"
    return str(value)


def evidence_rows(evidence: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested evidence as rows of name and text; names of nested tables are joined."""
    rows: list[tuple[str, str]] = []
    for key, value in evidence.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, dict) and len(value) > 1:
            rows += evidence_rows(value, f"{name} · ")
        else:
            rows.append((name, plain(value)))
    return rows
