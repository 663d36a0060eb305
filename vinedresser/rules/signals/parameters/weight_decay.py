"""How much of the weights the optimizers' weight decay removes in a step."""

from __future__ import annotations

from typing import Any

from vinedresser.store.records import RunRecord

__all__ = ["decay_per_step", "greatest_decay"]


def greatest_decay(info: RunRecord) -> float:
    """Return the largest weight decay of the optimizers; 0.0 without any."""
    return max((_number(one, "weight_decay") for one in info.optimizers), default=0.0)


def decay_per_step(info: RunRecord) -> float:
    """Return the share of the weights that weight decay removes in a step; 0.0 without any.

    It is the learning rate times the decay, at the rate with which an optimizer was created: for
    decoupled decay (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019), as
    of AdamW and all optimizers of Keras, and for SGD, where both kinds are the same. Other
    optimizers normalise the decay along with the gradient.
    """
    shares = (
        _number(one, "lr") * _number(one, "weight_decay")
        for one in info.optimizers
        if info.framework == "keras" or _direct(one)
    )
    return max(shares, default=0.0)


def _direct(optimizer: dict[str, Any]) -> bool:
    """Return whether an optimizer of PyTorch multiplies the weights by a factor."""
    if optimizer.get("type") in ("AdamW", "SGD"):
        return True
    return optimizer.get("settings", {}).get("decoupled_weight_decay") is True


def _number(optimizer: dict[str, Any], setting: str) -> float:
    """Return a setting; 0.0 if it is not a positive number."""
    value = optimizer.get("settings", {}).get(setting)
    return max(float(value), 0.0) if isinstance(value, int | float) else 0.0
