"""A finding of a rule, for tests of what follows it."""

from __future__ import annotations

import math
from typing import Any

from vinedresser.store.finding import Finding, Severity


def finding(
    correction: dict[str, Any], *, rule: str = "own", since: int = 14, severity: Severity = "stop"
) -> Finding:
    """Return a finding at step 15."""
    return Finding(
        rule=rule,
        severity=severity,
        step=15,
        since=since,
        mode="train",
        rank=0,
        tensor="losses/own",
        statistic="loss",
        value=math.nan,
        threshold=0.0,
        confidence=1.0,
        seen="the loss rose",
        cause="too large steps",
        remedy="smaller ones",
        correction=correction,
    )
