"""Attention weights captured in a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import UnknownStep, UnknownTensor, did_you_mean
from vinedresser.explain.attention.weights import Attention, LayerAttention
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import Mode

_CALL = re.compile(r"(?P<path>.*?)#(?P<call>\d+)")


def read_attention(
    run: Run,
    name: str | None = None,
    *,
    step: int | None = None,
    mode: Mode = "train",
    rank: int = 0,
) -> Attention:
    """Return the attention weights that a run captured in full at one step.

    Args:
        name: name of one tensor, such as "outputs/block.softmax()" of an attention written by hand;
            None: all of the ``attention`` collection.
        step: the step; None: the last one with attention.
        rank: rank of a distributed run.

    Raises:
        UnknownTensor: no such tensor, or no attention was captured.
        UnknownStep: not captured in full at this step, or never in this mode.
        ConfigError: the tensor does not contain attention weights.
        CorruptData: the bytes on disk do not match their checksum.
    """
    names = _names(run, name)
    steps = np.unique(np.concatenate([run.tensor(one).steps(mode, rank) for one in names]))
    if not len(steps):
        raise UnknownStep(
            f"{run.path}: attention was never captured in full in mode {mode} of rank {rank}; "
            "set [capture.attention] every = 100, rows = 4"
        )
    chosen = int(steps[-1]) if step is None else step
    held = [one for one in names if chosen in run.tensor(one).steps(mode, rank)]
    if not held:
        near = steps[np.argsort(np.abs(steps - chosen), kind="stable")[:3]]
        raise UnknownStep(
            f"{run.path}: attention was not captured in full at {mode} step {chosen}; nearest: "
            f"{', '.join(map(str, sorted(near.tolist())))}"
        )
    layers = [
        LayerAttention.checked(
            one.removeprefix("attention/"), run.tensor(one).value(chosen, mode, rank)
        )
        for one in held
    ]
    origin = f"{run.info.name}, {mode} step {chosen:,}"
    return Attention(layers, origin, _token_ids(run, layers, chosen, mode, rank))


def _names(run: Run, name: str | None) -> list[str]:
    """Return the tensors to read: calls of a layer in their order."""
    if name is not None:
        known = run.tensor_names()
        if name not in known:
            raise UnknownTensor(f"{run.path}: no tensor {name}{did_you_mean(name, known)}")
        return [name]
    names = run.tensor_names("^attention/")
    if not names:
        raise UnknownTensor(
            f"{run.path}: no attention was captured; set [capture.attention] every = 100, rows = 4"
        )
    first = {path: place for place, (path, _) in reversed([*enumerate(map(_call, names))])}
    return sorted(names, key=lambda one: (first[_call(one)[0]], _call(one)[1]))


def _call(name: str) -> tuple[str, int]:
    """Return the path in a name, and the number of the call."""
    found = _CALL.fullmatch(name)
    return (found["path"], int(found["call"])) if found else (name, 0)


def _token_ids(
    run: Run, layers: Sequence[LayerAttention], step: int, mode: Mode, rank: int
) -> NDArray[Any] | None:
    """Return the first captured model input that has an integer for each key, [N, S]."""
    examples, _, _, keys = layers[0].weights.shape
    for name in run.tensor_names(collection="model_inputs"):
        view = run.tensor(name)
        if step in view.steps(mode, rank):
            value = view.value(step, mode, rank)
            if value.dtype.kind in "iu" and value.shape == (examples, keys):
                return value
    return None
