"""Which two faults of a family can be in one training at the same time.

Both have to be there to be found: they are in different parts of a training, and neither of them
hides the other. After a fault by which nothing is learned, or by which nothing finite is left,
only what the data, the outputs or the gradients show from the first step on is left to be found.
"""

from __future__ import annotations

from itertools import combinations

from benchmarks.faults.classes import JOINED

__all__ = ["compatible", "paired"]

_PARTS = {
    "rows": (
        *("unnormalised_inputs", "constant_inputs", "nan_inputs", "duplicated_rows", "wrong_axis"),
        *("ruinous_augmentation", "same_batch", "wrong_adjacency", "target_leak"),
    ),
    "labels": (
        *("shuffled_labels", "label_noise", "off_by_one", "single_label", "class_imbalance"),
        *("unnormalised_targets", "misaligned_targets"),
    ),
    "loss": (
        *("double_softmax", "softmax_wrong_axis", "relu_before_loss", "nll_on_probabilities"),
        *("sigmoid_before_logits", "loss_reduction", "wrong_broadcast", "wrong_sign"),
        *("term_wrong_sign", "wrong_loss"),
    ),
    "network": (
        *("dropout_too_high", "dead_relu", "saturation", "zero_init", "large_init", "small_init"),
        *("bn_momentum", "train_eval_mode"),
    ),
    "updates": (
        *("lr_too_high", "lr_too_low", "late_jump", "scheduler_to_zero", "scheduler_per_batch"),
        *("wrong_parameters", "not_in_optimizer", "frozen_layers", "missing_zero_grad"),
        *("weight_decay_too_high", "momentum_too_high", "adam_epsilon", "adam_betas"),
        *("clip_too_small", "half_underflow", "half_overflow"),
    ),
}
_PART = {fault: part for part, faults in _PARTS.items() for fault in faults}
# Nothing is learned, or nothing finite is left.
_HIDING = {
    *("lr_too_low", "scheduler_to_zero", "scheduler_per_batch", "wrong_parameters"),
    *("clip_too_small", "half_underflow", "adam_epsilon", "zero_init", "small_init"),
    *("lr_too_high", "late_jump", "half_overflow", "nan_inputs", "large_init", "wrong_sign"),
    *("term_wrong_sign", "wrong_loss", "constant_inputs", "not_in_optimizer"),
}
# What data, outputs or gradients show from the first step on, whatever is learned.
_AT_ONCE = {
    *("unnormalised_inputs", "duplicated_rows", "same_batch"),
    *("single_label", "class_imbalance", "unnormalised_targets"),
    *("double_softmax", "softmax_wrong_axis", "nll_on_probabilities", "sigmoid_before_logits"),
    *("loss_reduction", "dropout_too_high", "dead_relu", "saturation", "frozen_layers"),
}


def compatible(one: str, other: str) -> bool:
    """Return whether both faults can be found in one training.

    A fault that is not in one of the parts that all trainings have goes with no other.
    """
    if one not in _PART or other not in _PART or _PART[one] == _PART[other]:
        return False
    hidden = {second for first, second in ((one, other), (other, one)) if first in _HIDING}
    return hidden <= _AT_ONCE


def paired(choices: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the families with each two of their faults that go together.

    Args:
        choices: families and the faults that they carry.
    """
    carried: dict[str, list[str]] = {}
    for family, fault in sorted(choices):
        carried.setdefault(family, []).append(fault)
    return {
        (family, JOINED.join(two))
        for family, faults in carried.items()
        for two in combinations(faults, 2)
        if compatible(*two)
    }
