"""How much of the weights the optimizers' weight decay removes in a step."""

from __future__ import annotations

from typing import Any

from vinedresser.store.records import RunRecord

__all__ = ["decay_per_step", "direct_decay", "greatest_decay"]


def greatest_decay(info: RunRecord) -> float:
    """Return the largest weight decay of the optimizers; 0.0 without any."""
    return max((_number(optimizer, "weight_decay") for optimizer in info.optimizers), default=0.0)


def decay_per_step(info: RunRecord) -> float:
    """Return the share of the weights that weight decay removes in a step; 0.0 without any.

    It is the learning rate with which an optimizer was created times its decay (`direct_decay`).
    """
    return max(
        (_number(optimizer, "lr") * _direct(optimizer, info) for optimizer in info.optimizers),
        default=0.0,
    )


def direct_decay(info: RunRecord) -> float:
    """Return the weight decay that times the learning rate is the share removed in a step.

    That is decoupled decay (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR
    2019), as of AdamW and all optimizers of Keras, and the decay of SGD, where both kinds are the
    same; other optimizers normalise it along with the gradient. 0.0 without any, and with several
    optimizers, whose rates differ.
    """
    return _direct(info.optimizers[0], info) if len(info.optimizers) == 1 else 0.0


def _direct(optimizer: dict[str, Any], info: RunRecord) -> float:
    """Return the weight decay of an optimizer that multiplies the weights by a factor, or 0.0."""
    decoupled = optimizer.get("settings", {}).get("decoupled_weight_decay") is True
    known = info.framework == "keras" or optimizer.get("type") in ("AdamW", "SGD") or decoupled
    return _number(optimizer, "weight_decay") if known else 0.0


def _number(optimizer: dict[str, Any], setting: str) -> float:
    """Return a setting; 0.0 if it is not a positive number."""
    value = optimizer.get("settings", {}).get(setting)
    return max(float(value), 0.0) if isinstance(value, int | float) else 0.0
