"""Deviations of a case's loop from a usual one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.faults.words import check_keys, known_word, number, whole
from vinedresser.errors import ConfigError

__all__ = ["SCHEDULES", "TrainSettings", "check_settings"]


@dataclass(frozen=True)
class TrainSettings:
    """Settings of a training loop.

    Attributes:
        eval_mode: whether it never switches the model to training mode.
        eval_in_train_mode: whether it evaluates in training mode.
        zero_grad: whether it clears the gradients.
        step: whether the optimizer steps.
        backward: whether gradients are computed.
        frozen: indices of layers, among those with weights, whose weights are frozen.
        omitted: indices of such layers that are missing from the optimizer.
        detached: index of such a layer before which the graph is cut.
        shuffle: whether rows are shuffled in each epoch.
        sorted: whether rows are sorted by label.
        clip_norm: maximum gradient norm; 0 disables clipping.
        accumulate: batches per step; the loss is not divided by it.
        schedule: learning rate schedule, from `SCHEDULES`.
        schedule_steps: length of that schedule in steps; 0 for the whole training.
        retain_batch: whether every step sees the same batch.
        double_softmax: whether the loop applies a softmax to the outputs before the loss.
        squeeze_target: whether targets lose their last axis, so that they are broadcast.
        stop_after: step from which the first half of the parameters is frozen; 0 for never.
    """

    eval_mode: bool = False
    eval_in_train_mode: bool = False
    zero_grad: bool = True
    step: bool = True
    backward: bool = True
    frozen: tuple[int, ...] = ()
    omitted: tuple[int, ...] = ()
    detached: int | None = None
    shuffle: bool = True
    sorted: bool = False
    clip_norm: float = 0.0
    accumulate: int = 1
    schedule: str = "constant"
    schedule_steps: int = 0
    retain_batch: bool = False
    double_softmax: bool = False
    squeeze_target: bool = False
    stop_after: int = 0


SCHEDULES = ("constant", "to_zero", "step", "cosine", "warmup", "growing", "late_jump")
# Accepted keys, and the setting of each; "not " inverts it.
_FLAGS = {
    "eval_in_train_mode": "eval_in_train_mode",
    "no_eval_mode": "eval_in_train_mode",
    "train_in_eval_mode": "eval_mode",
    "zero_grad": "zero_grad",
    "no_zero_grad": "not zero_grad",
    "missing_zero_grad": "not zero_grad",
    "skip_zero_grad": "not zero_grad",
    "step": "step",
    "no_step": "not step",
    "missing_step": "not step",
    "no_backward": "not backward",
    "missing_backward": "not backward",
    "shuffle": "shuffle",
    "no_shuffle": "not shuffle",
    "sorted": "sorted",
    "sort_by_label": "sorted",
    "same_batch": "retain_batch",
    "single_batch": "retain_batch",
    "double_softmax": "double_softmax",
    "softmax_before_loss": "double_softmax",
    "squeeze_target": "squeeze_target",
    "broadcast": "squeeze_target",
}
_LISTS = {
    "frozen": "frozen",
    "freeze": "frozen",
    "not_in_optimizer": "omitted",
    "omit_from_optimizer": "omitted",
}
_NUMBERS = {"clip": "clip_norm", "clip_norm": "clip_norm", "clipnorm": "clip_norm"}
_WHOLE = {
    "accumulate": "accumulate",
    "schedule_steps": "schedule_steps",
    "stop_after": "stop_after",
    "detach": "detached",
}
_WORDS = ("mode", "schedule")


def check_settings(table: object, where: str) -> TrainSettings:
    """Return the settings of a case's ``train``.

    Raises:
        ConfigError: A key is unknown, or a value is invalid.
    """
    known = [*_WORDS, *_FLAGS, *_LISTS, *_NUMBERS, *_WHOLE]
    given = check_keys(table, known, where)
    settings = TrainSettings()
    for key, value in given.items():
        name, read = _setting(key, value, f"{where}.{key}")
        settings = replace(settings, **{name: read})
    return settings


def _setting(key: str, value: object, where: str) -> tuple[str, Any]:
    """Return the name of a setting and its value."""
    if key in _FLAGS:
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: must be true or false, not {value!r}")
        name = _FLAGS[key]
        return name.removeprefix("not "), value is not name.startswith("not ")
    if key in _LISTS:
        items = value if isinstance(value, list) else [value]
        return _LISTS[key], tuple(_place(item, where) for item in items)
    if key in _NUMBERS:
        return _NUMBERS[key], number(value, where)
    if key in _WHOLE:
        return _WHOLE[key], whole(value, where, 0)
    read: Callable[[object, str], tuple[str, Any]] = _mode if key == "mode" else _schedule
    return read(value, where)


def _place(item: object, where: str) -> int:
    """Return the index of a layer, which counts from the end if it is negative."""
    if item in ("first", "last"):
        return 0 if item == "first" else -1
    if isinstance(item, bool) or not isinstance(item, int):
        raise ConfigError(f"{where}: must be indices of layers with weights, not {item!r}")
    return item


def _mode(value: object, where: str) -> tuple[str, Any]:
    return "eval_mode", known_word(value, ("train", "eval"), where, "mode") == "eval"


def _schedule(value: object, where: str) -> tuple[str, Any]:
    return "schedule", known_word(value, SCHEDULES, where, "schedule")
