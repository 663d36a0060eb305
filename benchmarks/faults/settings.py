"""How the loop of a case differs from a usual one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.faults.words import check_keys, known_word, number, whole
from vinedresser.errors import ConfigError

__all__ = ["SCHEDULES", "TrainSettings", "check_settings"]


@dataclass(frozen=True)
class TrainSettings:
    """What a loop does.

    Attributes:
        eval_mode: it never puts the model into training mode.
        eval_in_train_mode: it evaluates in training mode.
        zero_grad: it clears the gradients.
        step: the optimizer steps.
        backward: gradients are computed.
        frozen: layers, counted among those with weights, whose weights need no gradient.
        omitted: such layers that the optimizer was not given.
        detached: such a layer before which the graph is cut.
        shuffle: rows come in another order in each epoch.
        sorted: rows come sorted by label.
        clip_norm: gradients are clipped to this norm; 0: not at all.
        accumulate: batches in a step; the loss is not divided by it.
        schedule: of the learning rate, one of `SCHEDULES`.
        schedule_steps: steps of that schedule; 0: all.
        retain_batch: every step sees the same batch.
        double_softmax: the loop puts a softmax on the outputs before the loss.
        squeeze_target: targets lose their last axis, so that they are broadcast.
        stop_after: step from which on the first half of the parameters needs no gradient; 0: never.
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
# Keys as they may be written, and the setting that each is; "not " turns it round.
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
        ConfigError: an unknown key, or a value that is not right.
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
    """Return the place of a layer, from the end where it is negative."""
    if item in ("first", "last"):
        return 0 if item == "first" else -1
    if isinstance(item, bool) or not isinstance(item, int):
        raise ConfigError(f"{where}: must be places of layers with weights, not {item!r}")
    return item


def _mode(value: object, where: str) -> tuple[str, Any]:
    return "eval_mode", known_word(value, ("train", "eval"), where, "mode") == "eval"


def _schedule(value: object, where: str) -> tuple[str, Any]:
    return "schedule", known_word(value, SCHEDULES, where, "schedule")
