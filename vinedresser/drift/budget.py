"""How the budget of false alarms is shared."""

from __future__ import annotations

import math
from typing import Literal

__all__ = ["evidence_needed"]

_SHARES = {"columns": 0.6, "together": 0.2, "accuracy": 0.2}


def evidence_needed(
    budget: float, part: Literal["columns", "together", "accuracy"], among: int
) -> float:
    """Return the evidence that raises an alarm, in nats.

    By Ville's inequality, an e-process reaches it with a probability of the budget's share at most,
    and the sum of all shares is the budget (Bonferroni, valid for dependent streams).

    Args:
        budget: probability of a false alarm in the life of a monitor.
        part: of what is monitored.
        among: number of e-processes in this part.
    """
    return -math.log(budget * _SHARES[part] / among)
