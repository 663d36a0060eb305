"""Check of what PyTorch's Kullback-Leibler divergence is given."""

from __future__ import annotations

from typing import Any

from vinedresser.rules.losses.mismatch import Mismatch, OutputForm

__all__ = ["divergence_of_shares", "is_divergence"]

_DIVERGENCES = ("KLDivLoss", "kl_div")


def is_divergence(setup: dict[str, Any]) -> bool:
    """Return whether a loss of PyTorch is a divergence from its targets.

    Args:
        setup: its entry in `RunRecord.losses`.
    """
    named = setup.get("function") or setup.get("type")
    return setup.get("custom") is not True and named in _DIVERGENCES


def divergence_of_shares(form: OutputForm) -> Mismatch | None:
    """Return the mismatch of probabilities for a divergence, which takes their logarithms.

    These are never above 0, so their rows cannot sum to 1.
    """
    if not form.shares or form.width < 2:
        return None
    return Mismatch(
        "no_logarithms",
        sure=True,
        statistic="max",
        value=form.highest,
        threshold=0.0,
        seen=f"KLDivLoss, which takes log-probabilities, receives values from {form.lowest:.3g} to "
        f"{form.highest:.3g}, with rows that sum to 1",
        cause="the outputs are probabilities without their logarithm, so the loss is no "
        "divergence: it falls below 0, and its gradient does not depend on the outputs",
        remedy="use log_softmax instead of softmax before KLDivLoss; only its targets are "
        "probabilities",
    )
