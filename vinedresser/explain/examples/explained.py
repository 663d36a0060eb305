"""Examples and where a model looks in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.saliency import Saliency, saliency
from vinedresser.explain.saliency.batches import joined
from vinedresser.explain.saliency.explanation import channels_are_last
from vinedresser.explain.saliency.model_input import as_input
from vinedresser.explain.saliency.options import Method

__all__ = [
    "Explained",
    "class_index",
    "class_name",
    "class_names",
    "explain_true",
    "explained",
    "is_class",
]

# Examples whose saliency is computed together.
_BATCH = 16


@dataclass(frozen=True, eq=False)
class Explained:
    """Examples, and where the model looks.

    Attributes:
        inputs: [N, ...].
        result: their saliency for the predicted classes.
        classes: name of the predicted class of each.
        confidence: of the prediction, NaN if unknown [N].
        true: name of the true class of each; None where it is unknown.
        for_true: saliency for the true class of each, by its place, where it is not the predicted.
        channels_last: the channels of images are the last axis.
    """

    inputs: NDArray[Any]
    result: Saliency
    classes: list[str]
    confidence: NDArray[np.float64]
    true: list[str | None]
    for_true: dict[int, Saliency]
    channels_last: bool = False

    @property
    def looks(self) -> NDArray[np.floating[Any]]:
        """Where the model looks: maps [N, H, W], or the contributions of features [N, ...]."""
        if self.result.map is not None:
            return self.result.map
        assert self.result.attributions is not None, "only Grad-CAM has none, but it has maps"
        return self.result.attributions


def explained(
    model: Any,
    inputs: NDArray[Any],
    names: list[str],
    predictions: NDArray[Any] | None,
    *,
    confidence: NDArray[np.float64],
    method: Method,
) -> Explained:
    """Explain examples in batches.

    Args:
        inputs: [N, ...].
        names: name of the predicted class of each.
        predictions: predicted class of each, by number [N]; others, or None: the largest output is
            explained.
        confidence: of the prediction, NaN if unknown [N].
        method: what the maps show.

    Raises:
        SaliencyError: the model's output cannot be explained.
    """
    parts = []
    for start in range(0, len(inputs), _BATCH):
        some = slice(start, start + _BATCH)
        # Numbers that are no classes are the only output.
        known = predictions is not None and is_class(predictions)
        targets = predictions[some].tolist() if predictions is not None and known else None
        parts.append(saliency(model, as_input(model, inputs[some]), targets, method=method))
    true: list[str | None] = [None] * len(names)
    last = channels_are_last(model)
    return Explained(inputs, joined(parts), names, confidence, true, {}, last)


def explain_true(made: Explained, model: Any, targets: Mapping[int, int], method: Method) -> None:
    """Add saliency for the true classes of some examples.

    Args:
        targets: number of the true class, by place of the example.
        method: what the maps show.

    Raises:
        SaliencyError: the model's output cannot be explained.
    """
    for place, target in targets.items():
        given = as_input(model, made.inputs[place : place + 1])
        made.for_true[place] = saliency(model, given, target, method=method)


def is_class(predictions: NDArray[Any] | None) -> bool:
    """Return whether predictions are classes, by number."""
    return predictions is not None and predictions.dtype.kind in "iub"


def class_names(predictions: NDArray[Any] | None, count: int, classes: list[str]) -> list[str]:
    """Return the names of predictions; numbers that are no classes have none.

    Args:
        predictions: [N], or None.
        count: N.
    """
    if predictions is None or predictions.dtype.kind == "f":
        return ["the output"] * count
    return [class_name(one, classes) for one in predictions.tolist()]


def class_name(value: object, classes: list[str]) -> str:
    """Return the name of a class, which may be given by its number."""
    place = class_index(value, classes)
    return classes[place] if place is not None and place < len(classes) else str(value)


def class_index(value: object, classes: list[str]) -> int | None:
    """Return the number of a class; None if it is not known."""
    if isinstance(value, bool | int):
        return int(value) if value >= 0 else None
    return classes.index(value) if isinstance(value, str) and value in classes else None
