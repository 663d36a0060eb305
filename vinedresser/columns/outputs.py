"""Predicted class and confidence, from what a model returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vinedresser.columns.images import array_columns
from vinedresser.columns.rows import Parts, host_array
from vinedresser.columns.values import column
from vinedresser.errors import ConfigError

__all__ = ["OUTPUT_KINDS", "Classify", "check_classify", "output_columns"]

OUTPUT_KINDS = ("logits", "probabilities", "values")

# How predictions are read from outputs: their kind, or a function from the outputs of a batch to
# the predictions [rows] and their confidence [rows] or None.
Classify: TypeAlias = (
    Literal["logits", "probabilities", "values"]
    | Callable[[Any], tuple[NDArray[Any], NDArray[Any] | None]]
)

# Entries of a mapping that hold the scores of classes, the first one found counts.
_SCORES = ("logits", "probabilities", "scores", "predictions", "outputs")
# Differences from 1 of a sum of probabilities in float16.
_ROUNDING = 4e-3


def check_classify(classify: Any) -> None:
    """Check how predictions are to be read from outputs.

    Raises:
        ConfigError: it is neither a kind of outputs nor callable.
    """
    if classify is not None and classify not in OUTPUT_KINDS and not callable(classify):
        raise ConfigError(
            f"classify: {classify!r} is not one of {', '.join(OUTPUT_KINDS)}, and not callable"
        )


def output_columns(outputs: Parts, classify: Classify | None) -> dict[str, NDArray[Any]]:
    """Describe the outputs of a model.

    Args:
        outputs: outputs of each request; see `parts_of`.
        classify: how to read predictions from them; see `describe`.

    Returns:
        "prediction" [rows]: int64 class (-1 if a score is NaN), or a value, text or number;
        "confidence" float64 [rows] if the outputs are scores of classes; or, for arrays of more
        axes and for several named outputs, statistics whose names begin with "output".

    Raises:
        ConfigError: the outputs do not have the shape that ``classify`` needs.
    """
    if callable(classify):
        whole = {one: host_array(part) for one, part in outputs.items()}
        predictions, confidence = classify(whole[""] if [*whole] == [""] else whole)
        found = {"prediction": column(np.asarray(predictions))}
        return found if confidence is None else found | {"confidence": _numbers(confidence)}
    if "prediction" in outputs:
        # Already told apart, as in the answer of a service.
        named = [one for one in ("prediction", "confidence") if one in outputs]
        return {one: _column_of(one, outputs[one]) for one in named}
    name = next((one for one in _SCORES if one in outputs), None)
    if name is None and len(outputs) > 1 and "0" not in outputs:
        arrays = {one: host_array(part) for one, part in outputs.items()}
        return {
            f"output.{one}": column(array, from_list=isinstance(outputs[one], list))
            for one, array in arrays.items()
            if array.ndim == 1
        }
    return _single(outputs[next(iter(outputs)) if name is None else name], classify)


def _single(part: Any, classify: Any) -> dict[str, NDArray[Any]]:
    """Describe outputs that are one array."""
    array = host_array(part)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.dtype.kind in "fiu" and classify != "values":
        return _scores(array, classify)
    if classify in ("logits", "probabilities"):
        raise ConfigError(
            f"classify={classify!r} needs outputs of shape [requests, classes], with at least two "
            f"classes, not {list(array.shape)}"
        )
    if array.ndim == 1:
        # Classes in JSON are integers.
        from_list = isinstance(part, list) and array.dtype.kind not in "iu"
        return {"prediction": column(array, from_list=from_list)}
    if array.ndim == 2:
        return {f"output.{place}": column(array[:, place]) for place in range(array.shape[1])}
    return {f"output.{one}": values for one, values in array_columns(array).items()}


def _column_of(name: str, part: Any) -> NDArray[Any]:
    array = host_array(part)
    if array.ndim != 1:
        raise ConfigError(f"outputs: {name} has shape {list(array.shape)}, not [requests]")
    return column(array)


def _numbers(values: Any) -> NDArray[np.float64]:
    return np.asarray(values, np.float64)


def _scores(scores: NDArray[Any], kind: Any) -> dict[str, NDArray[Any]]:
    """Return the class with the highest score and its probability, of each row by itself."""
    numbers = scores.astype(np.float64)
    whole = np.isfinite(numbers).all(1)
    # Infinite logits would give NaN; such a row has no prediction.
    numbers[~whole] = 0.0
    top = numbers.max(1)
    with np.errstate(over="ignore"):
        confidence = 1.0 / np.exp(numbers - top[:, None]).sum(1)
    if kind != "logits":
        sums = np.abs(numbers.sum(1) - 1.0) <= _ROUNDING
        likely = sums & (numbers.min(1) >= -_ROUNDING) & (top <= 1.0 + _ROUNDING)
        confidence = np.where(likely | (kind == "probabilities"), top, confidence)
    prediction = np.where(whole, numbers.argmax(1), -1).astype(np.int64)
    return {"prediction": prediction, "confidence": np.where(whole, confidence, np.nan)}
