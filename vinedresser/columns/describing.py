"""Columns that describe requests: the same for the requests of a service and for its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.columns.images import array_columns
from vinedresser.columns.outputs import Classify, check_classify, output_columns
from vinedresser.columns.rows import Parts, host_array, parts_of, row_count
from vinedresser.columns.values import column
from vinedresser.errors import ConfigError

__all__ = ["MOST_FEATURES", "describe"]

# Columns of a two-dimensional array; a wider one is described by its statistics.
MOST_FEATURES = 256


def describe(
    inputs: Any,
    outputs: Any = None,
    features: Sequence[str] | None = None,
    embedding: Any = None,
    *,
    classify: Classify | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the columns that describe requests, one row per request.

    Each row depends on its own request only, so any batches give the same columns.

    Args:
        inputs: inputs of the requests: an array or tensor [requests, ...] of any framework, a
            DataFrame, a mapping of columns, or a list of records, rows or texts. An array
            [requests, features] of at most 256 features gives one column per feature; arrays of
            more axes (images) give "mean", "std", "minimum", "maximum", "sharpness" and the mean of
            each channel; an unnamed list of texts gives "characters" and "words". Texts in named
            columns are categories, of which the first 64 characters count.
        outputs: outputs of the model, likewise; None: there are none. Scores [requests, classes]
            give "prediction" and "confidence"; numbers, classes or texts [requests] give
            "prediction".
        features: names of the features of an array, in their order, or the columns to use of named
            inputs; None: "x0", "x1", ..., or all columns.
        embedding: outputs of a layer, float [requests, dimensions]; None: there are none.
        classify: how to read scores: "logits" (softmax gives the confidence), "probabilities", or
            "values" (they are no classes); a function from the outputs (one array, or a mapping of
            arrays) to predictions and confidence (or None), [requests] each. None: scores in a row
            from 0 to 1 with a sum of 1 are probabilities, all others are logits.

    Returns:
        Columns by name: [requests] of float64 with NaN for missing numbers, int64, bool, or objects
        (str or None); "embedding", float32 [requests, dimensions].

    Raises:
        ConfigError: the features do not fit the inputs, or the classification the outputs.
        ValueError: inputs, outputs and embedding have different numbers of rows.
    """
    check_classify(classify)
    count = row_count(inputs)
    found = _input_columns(parts_of(inputs), features)
    if outputs is not None:
        _check_rows("outputs", row_count(outputs), count)
        found |= output_columns(parts_of(outputs), classify)
    if embedding is not None:
        vectors = np.asarray(host_array(embedding), np.float32)
        if vectors.ndim != 2:
            raise ConfigError(
                f"embedding: shape {list(vectors.shape)} is not [requests, dimensions]"
            )
        _check_rows("embedding", len(vectors), count)
        found["embedding"] = vectors
    return found


def _check_rows(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"the {what} have {found} rows, the inputs {expected}")


def _input_columns(parts: Parts, features: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    if features is not None and "" not in parts:
        missing = [name for name in features if name not in parts]
        if missing:
            raise ConfigError(
                f"features: the inputs have no {', '.join(missing)}, but {', '.join(parts)}"
            )
        parts = {name: parts[name] for name in features}
    found: dict[str, NDArray[Any]] = {}
    for name, part in parts.items():
        array = host_array(part)
        from_list = isinstance(part, list)
        found |= _part_columns(name, array, features if name == "" else None, from_list)
    return found


def _part_columns(
    name: str, array: NDArray[Any], features: Sequence[str] | None, from_list: bool
) -> dict[str, NDArray[Any]]:
    """Return the columns of one part; their names begin with the part's name, if it has one."""
    begin = f"{name}." if name else ""
    if array.ndim == 1:
        if not name and features is None and array.dtype.kind in "UO":
            values = column(array)
            if values.dtype == object:
                return _text_columns(array)
        array = array[:, None] if not name else array
        if array.ndim == 1:
            return {name: column(array, from_list=from_list)}
    width = array.shape[1]
    if features is not None and (array.ndim != 2 or len(features) != width):
        raise ConfigError(
            f"features: {len(features)} names for inputs of shape {list(array.shape)}; an array "
            "needs one name per column"
        )
    if array.ndim > 2 or width > MOST_FEATURES:
        # A wide row is an image of a single line.
        shaped = array if array.ndim > 2 else array[:, None, :]
        described = array_columns(shaped)
        if array.ndim == 2:
            del described["sharpness"]
        return {f"{begin}{one}": values for one, values in described.items()}
    names = features or [f"{begin}{place}" if name else f"x{place}" for place in range(width)]
    return {one: column(array[:, place], from_list=from_list) for place, one in enumerate(names)}


def _text_columns(texts: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Describe texts by their length."""
    plain = ["" if one is None else str(one) for one in texts.tolist()]
    return {
        "characters": np.array([len(one) for one in plain], np.int64),
        "words": np.array([len(one.split()) for one in plain], np.int64),
    }
