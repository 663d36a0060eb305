"""What a loss compared in a step with several forwards of the model before the backward pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vinedresser.frameworks.loss_functions import measures_errors
from vinedresser.frameworks.torch_.losses.loss_graphs import (
    Comparison,
    LossInputs,
    comparisons,
    have_other_labels,
)
from vinedresser.frameworks.torch_.losses.loss_paths import SHAPES
from vinedresser.frameworks.torch_.losses.model_outputs import forwards_of, marked_output

__all__ = ["Paired", "call_of_several", "inputs_of_several"]

_FIRST = frozenset({1})
# A label that all rows share tells real rows from generated ones, or is no label, as of residuals.
_LEAST_ROWS = 2


class Paired(NamedTuple):
    """What a loss compared.

    Attributes:
        inputs: predictions and labels.
        first: whether the predictions were computed from outputs of the first forward only, so
            that their rows are those of its inputs.
    """

    inputs: LossInputs
    first: bool


class _Candidate(NamedTuple):
    inputs: LossInputs
    forwards: frozenset[int]
    numbers: bool


def inputs_of_several(loss: Tensor, *, numbers: bool) -> Paired | None:
    """Return what a loss compared in a step with several forwards; see `mark_outputs`.

    Labels are certain if they differ from row to row and are classes, or yes or no. Other numbers
    are certain if they are compared with outputs of the model themselves, all of the same forwards:
    otherwise they may be computed from its outputs, as those of another view of the same rows.
    Beside a mean, a function of each row has weights, such as those of labels that a model guessed.

    Args:
        loss: loss [] with a gradient, whose graph has not been freed by a backward pass.
        numbers: whether such numbers are certainly no outputs of other forwards.

    Returns:
        Of several comparisons those with the first forward, else with the only other forwards, or
        the first of those with the same labels; None if there are none, or if they differ.
    """
    found = [one for comparison in comparisons(loss) if (one := _candidate(comparison))]
    if not numbers or len({one.forwards for one in found if one.numbers}) > 1:
        found = [one for one in found if not one.numbers]
    found = [one for one in found if one.inputs.settings.get("reduction") != "none"] or found
    chosen = [one for one in found if one.forwards == _FIRST] or found
    if len({one.forwards for one in chosen}) > 1 and _all_alike(chosen):
        chosen = [min(chosen, key=lambda one: sorted(one.forwards))]
    if not chosen or len({one.forwards for one in chosen}) > 1:
        return None
    nearest = chosen[0]
    if any(have_other_labels(nearest.inputs, one.inputs) for one in chosen[1:]):
        return None
    return Paired(nearest.inputs, nearest.forwards == _FIRST)


def call_of_several(predictions: Tensor, labels: Tensor, *, numbers: bool) -> bool | None:
    """Return whether the rows of the arguments of a loss are those of the first forward.

    Args:
        predictions: first argument, with its graph.
        labels: second argument, without a gradient.
        numbers: see `inputs_of_several`.

    Returns:
        None if the second argument is not certainly a label; see `inputs_of_several`.
    """
    kind = _kind(labels)
    node, place = predictions.grad_fn, predictions.output_nr
    if kind is None or (kind == "numbers" and not (numbers and _is_output(node, place))):
        return None
    forwards = forwards_of(node, place)
    return forwards == _FIRST if forwards else None


def _all_alike(found: list[_Candidate]) -> bool:
    """Return whether comparisons are of one function with the same labels."""
    first = found[0].inputs
    return all(
        one.inputs.function == first.function
        and one.inputs.labels.dtype == first.labels.dtype
        and torch.equal(one.inputs.labels, first.labels)
        for one in found[1:]
    )


def _candidate(comparison: Comparison) -> _Candidate | None:
    """Return a comparison with its forwards; None if it has no certain labels."""
    kind = _kind(comparison.inputs.labels)
    origins = [function for function in comparison.node.next_functions if function[0] is not None]
    numbers = kind == "numbers"
    direct = comparison.direct or (len(origins) == 1 and _is_output(*origins[0]))
    if kind is None or (numbers and not (direct and measures_errors(comparison.inputs.function))):
        return None
    forwards = forwards_of(comparison.node)
    return _Candidate(comparison.inputs, forwards, numbers) if forwards else None


def _kind(labels: Tensor) -> str | None:
    """Return "classes" (also yes or no) or "numbers"; None of labels that all rows share."""
    if not labels.ndim or len(labels) < _LEAST_ROWS or not labels.numel():
        return None
    if bool((labels == labels[:1]).all()):
        return None
    if not labels.is_floating_point():
        return "classes"
    size = labels.abs()
    return "classes" if bool(((size == 0) | (size == 1)).all()) else "numbers"


def _is_output(node: Any, place: int) -> bool:
    """Return whether a value is an output of the model, perhaps in another shape."""
    while node is not None and marked_output(node, place) is None:
        if not node.name().startswith(SHAPES):
            return False
        node, place = node.next_functions[0]
    return node is not None
