"""Rule: optimizers replace each other, so that their state is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.contracts.contract import Contract

_TAPES = "only PyTorch's optimizers are counted"


class OptimizerMadeAnew(Contract):
    """An optimizer is made anew in the training loop, and its averages of gradients are lost.

    Fires at the fourth optimizer of the same class and settings that updates the same parameters,
    if no weights were loaded in between. Plain gradient descent has no state to lose.
    """

    fault = "optimizer_made_anew"
    consequences = ("outcome", "learning_rate_too_low")
    position = 252
    inapplicable = Reasons(keras=_TAPES, xgboost=_TAPES, sklearn=_TAPES)
    remedy = "create the optimizer once, before the loop"

    def describe(self, breach: Mapping[str, Any]) -> tuple[float, str, str]:
        """See `Contract.describe`."""
        made = f"{breach['made']} optimizers ({breach['type']}) with the same settings"
        seen = f"by step {breach['step']}, {made} have replaced each other on the same parameters"
        cause = "the optimizer is made anew in the training loop, so that its state (momentum, "
        return float(breach["made"]), seen, f"{cause}averages of gradients) is lost each time"
