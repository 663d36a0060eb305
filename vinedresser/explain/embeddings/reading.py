"""Activations of the same examples at several steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError, UnknownStep
from vinedresser.rules.signals.rows import row_digests
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import Mode

__all__ = ["Activations", "read_activations"]

# Steps and examples that are drawn: t-SNE takes seconds for 500 examples.
_MOST_STEPS, _MOST_ROWS = 6, 500


@dataclass(frozen=True, eq=False)
class Activations:
    """Activations of some examples at some steps.

    Shape legend: N examples, F features.

    Attributes:
        name: name of the tensor.
        steps: the steps, ascending.
        values: activations of each step, float64 [N, F].
        labels: labels of the examples, [N]: integers of classes or float64; None if they were not
            captured, or differ from step to step.
        same: "known": the captured inputs are the same at all steps; "unknown": no inputs were
            captured.
        captured: number of captured steps.
        averaged: axes over which the activations are means, as text; "" for none.
    """

    name: str
    mode: Mode
    steps: tuple[int, ...]
    values: tuple[NDArray[np.float64], ...]
    labels: NDArray[Any] | None
    same: Literal["known", "unknown"]
    captured: int
    averaged: str


def read_activations(
    run: Run, name: str, *, mode: Mode | None = None, rank: int = 0
) -> Activations:
    """Return a captured activation of the examples that all steps have in common.

    Examples are recognised by the captured inputs of the model (``model_inputs``), wherever they
    are in the batch. Without inputs, each row is taken to be the same example at all steps, as in
    evaluations in a fixed order. At most 6 steps, evenly strided, and 500 examples are used.

    Args:
        name: name of the tensor, [rows, ...]: further axes of images and sequences are averaged.
        mode: mode of the steps; None: "eval" if it was captured then, else "train".
        rank: rank of a distributed run.

    Raises:
        UnknownTensor: no such tensor; the message suggests similar names.
        UnknownStep: never captured in full in this mode.
        ConfigError: the steps have fewer than 4 examples in common, or the tensor has no features.
        CorruptData: the bytes on disk do not match their checksum.
    """
    view = run.tensor(name)
    chosen: Mode = mode or ("eval" if len(view.steps("eval", rank)) else "train")
    captured = view.steps(chosen, rank)
    if not len(captured):
        raise UnknownStep(f"{run.path}: {name}: never captured in full in mode {chosen}")
    places = np.linspace(0, len(captured) - 1, min(len(captured), _MOST_STEPS)).round().astype(int)
    steps = [int(captured[place]) for place in places]
    raw = [view.value(step, chosen, rank) for step in steps]
    if any(value.ndim < 2 or not value.size for value in raw):
        raise ConfigError(f"{name}: must be [rows, features, ...], not {list(raw[0].shape)}")
    counts = [len(value) for value in raw]
    inputs = _of_rows(_beside(run, "model_inputs", steps, chosen, rank), counts)
    rows, same = _common_rows(name, inputs, counts)
    last = run.info.framework == "keras"
    values = [
        _features(value[own], channels_last=last) for value, own in zip(raw, rows, strict=True)
    ]
    if len({value.shape[1] for value in values}) > 1:
        raise ConfigError(f"{name}: its number of features differs from step to step")
    # Labels of other rows than the inputs are not those of the examples.
    labels: list[NDArray[Any] | None]
    labels = (
        [None] * len(steps) if run.info.unpaired else _beside(run, "labels", steps, chosen, rank)
    )
    return Activations(
        name=name,
        mode=chosen,
        steps=tuple(steps),
        values=tuple(values),
        labels=_one_each(_of_rows(labels, counts), rows),
        same=same,
        captured=len(captured),
        averaged=_averaged(raw[0].ndim),
    )


def _beside(
    run: Run, collection: str, steps: Sequence[int], mode: Mode, rank: int
) -> list[NDArray[Any] | None]:
    """Return the first captured tensor of a collection at each step, None where there is none."""
    views = [run.tensor(name) for name in run.tensor_names(collection=collection)]
    captured = [view.steps(mode, rank) for view in views]
    found = []
    for step in steps:
        held = [view for view, own in zip(views, captured, strict=True) if step in own]
        found.append(held[0].value(step, mode, rank) if held else None)
    return found


def _of_rows(values: list[NDArray[Any] | None], counts: Sequence[int]) -> list[NDArray[Any] | None]:
    """Return the tensors, None for those without a row per example."""
    return [
        value if value is not None and value.ndim and len(value) == count else None
        for value, count in zip(values, counts, strict=True)
    ]


def _common_rows(
    name: str, inputs: list[NDArray[Any] | None], counts: list[int]
) -> tuple[list[NDArray[np.int64]], Literal["known", "unknown"]]:
    """Return the rows of the common examples at each step, int64 [N] each."""
    found: list[NDArray[np.int64]]
    same: Literal["known", "unknown"]
    given = [one for one in inputs if one is not None]
    if len(given) == len(inputs):
        # The first of rows with equal inputs.
        places = [
            {digest: row for row, digest in reversed([*enumerate(row_digests(one))])}
            for one in given
        ]
        common = [digest for digest in places[0] if all(digest in place for place in places)]
        common.sort(key=places[0].__getitem__)
        found = [np.array([place[digest] for digest in common], np.int64) for place in places]
        same = "known"
    else:
        found = [np.arange(min(counts)) for _ in counts]
        same = "unknown"
    if len(found[0]) < 4:
        raise ConfigError(
            f"{name}: the steps have {len(found[0])} examples in common, and 4 are needed; capture "
            "evaluations on the same examples"
        )
    return [rows[:_MOST_ROWS] for rows in found], same


def _one_each(
    labels: list[NDArray[Any] | None], rows: list[NDArray[np.int64]]
) -> NDArray[Any] | None:
    """Return a label per example, if it is the same at all steps that have labels."""
    found = [
        _single(value[own]) for value, own in zip(labels, rows, strict=True) if value is not None
    ]
    first = found[0] if found else None
    if first is None:
        return None
    same = all(one is not None and np.array_equal(first, one) for one in found)
    return first if same else None


def _single(labels: NDArray[Any]) -> NDArray[Any] | None:
    """Return labels [N] as integers or float64; None if they are not a number per example."""
    flat = labels.reshape(len(labels), -1)
    if flat.shape[1] > 1:
        onehot = np.isin(flat, (0, 1)).all() and (flat.sum(1) == 1).all()
        return flat.argmax(1) if onehot else None
    single = flat[:, 0]
    if single.dtype.kind in "iub":
        return single.astype(np.int64)
    wide = single.astype(np.float64)
    # Keras gives classes as floats.
    whole = np.isfinite(wide).all() and (wide == np.round(wide)).all()
    return wide.astype(np.int64) if whole else wide


def _features(value: NDArray[Any], *, channels_last: bool) -> NDArray[np.float64]:
    """Return the features of rows, float64 [N, F]: means over positions of images and sequences.

    Args:
        value: [N, F], [N, T, F], or an image [N, F, H, W], in Keras [N, H, W, F].
        channels_last: the channels of images are the last axis.
    """
    wide = value.astype(np.float64)
    if wide.ndim == 2:
        return wide
    if wide.ndim == 3 or channels_last:
        return np.asarray(wide.reshape(len(wide), -1, wide.shape[-1]).mean(1))
    return np.asarray(wide.reshape(len(wide), wide.shape[1], -1).mean(2))


def _averaged(dimensions: int) -> str:
    if dimensions == 2:
        return ""
    return "positions of the sequence" if dimensions == 3 else "rows and columns of the image"
