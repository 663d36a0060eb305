"""The sentences of findings, with numbers and names as people write them."""

from __future__ import annotations

import re
from dataclasses import replace

from vinedresser.store.finding import Finding

__all__ = ["worded"]

# What Python writes for numbers of few digits, such as 1.8e+21, 5.2e+00 and 1.35e+05.
_SCIENTIFIC = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)e([+-]\d{2,3})(?![\w.]*\w)")
# A script has no such names in front of its losses and parameters.
_COLLECTIONS = re.compile(
    r"(?<![\w/.])(?:losses|metrics|gradients|weights|biases|buffers|optimizer_state)/(?=\S)"
)
_SIDES = re.compile(r"(?<![\w/.])(inputs|outputs)/(?=\S)")
# Decimal exponents of numbers that are written in full.
_LEAST, _MOST = -4, 5


def worded(finding: Finding) -> Finding:
    """Return a finding whose sentences have 0.0002 for 2e-04, 5.2 for 5.2e+00, and so on.

    Powers of ten stay above a million and below a ten-thousandth (1.8e21); names of losses,
    metrics, parameters, buffers and settings of optimizers lose their collections, and
    ``outputs/1`` is "outputs of 1".
    """
    seen, cause, remedy = map(_plain, (finding.seen, finding.cause, finding.remedy))
    return replace(finding, seen=seen, cause=cause, remedy=remedy)


def _plain(text: str) -> str:
    named = _SIDES.sub(r"\1 of ", _COLLECTIONS.sub("", text))
    return _SCIENTIFIC.sub(_number, named)


def _number(match: re.Match[str]) -> str:
    mantissa, power = match[1], int(match[2])
    if _LEAST <= power <= _MOST:
        return f"{float(match[0]):,.15g}"
    return f"{mantissa}e{power}"
