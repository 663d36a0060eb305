"""Hyperparameters of a run, found by what they are called."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any


def named(
    parameters: Mapping[str, Any], pattern: re.Pattern[str], *, positive: bool = True
) -> str | None:
    """Return the first hyperparameter with a matching name and a number as its value.

    Args:
        pattern: matches the name without any prefix before a dot, case, dashes and underscores.
        positive: whether the value must be above 0.
    """
    for name, value in parameters.items():
        word = re.sub("[-_]", "", name.rpartition(".")[2]).lower()
        if not pattern.fullmatch(word) or isinstance(value, bool):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if math.isfinite(number) and (number > 0 or not positive):
            return name
    return None
