"""Results as the plain values of answers."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vinedresser.queries.answer import Kind
from vinedresser.queries.folds.numbers import Entry
from vinedresser.queries.language.values import Confusion, Examples, Histogram, Image, Points

__all__ = ["plain"]

_LONGEST_TEXT = 2_000


def plain(value: Any) -> tuple[Kind, Any]:
    """Return the kind and the value of an answer; see `vinedresser.queries.answer.Answer`.

    Args:
        value: what a window's fold has kept: a number, a text, an array, a list of the largest
            entries, or a type of `vinedresser.queries.language.values`; None: NaN.
    """
    if type(value) in _PLAIN:
        kind, write = _PLAIN[type(value)]
        return kind, write(value)
    return "scalar", float(value) if value is not None else math.nan


def _confusion(value: Confusion) -> dict[str, Any]:
    classes = [str(number) for number in range(len(value.counts))]
    return {"classes": classes, "counts": value.counts.tolist()}


def _top(value: Sequence[Entry]) -> list[dict[str, Any]]:
    return [{"value": one.value, "at": one.at, "step": one.step} for one in value]


def _image(value: Image) -> dict[str, Any]:
    shape = dict(zip(("height", "width", "channels"), value.pixels.shape, strict=True))
    return {**shape, "data": base64.b64encode(value.pixels.tobytes()).decode()}


def _examples(value: Examples) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = [{"image": _image(image)} for image in value.images]
    samples = samples or [{"row": _short(row)} for row in value.rows]
    return [
        {"label": label, "prediction": guess, **one}
        for label, guess, one in zip(value.labels, value.predictions, samples, strict=True)
    ]


def _points(value: Points) -> dict[str, list[float]]:
    return {"x": _short(value.x.tolist()), "y": _short(value.y.tolist())}


def _short(values: Sequence[float]) -> list[float]:
    """Return numbers with the digits that a picture shows, so that answers stay small."""
    return [float(f"{value:.6g}") for value in values]


_PLAIN: Mapping[type[Any], tuple[Kind, Callable[[Any], Any]]] = {
    str: ("text", lambda value: value[:_LONGEST_TEXT]),
    Histogram: (
        "histogram",
        lambda value: {"edges": value.edges.tolist(), "counts": value.counts.tolist()},
    ),
    Confusion: ("confusion", _confusion),
    list: ("top", _top),
    np.ndarray: ("vector", lambda value: value.tolist()),
    Image: ("image", _image),
    Examples: ("examples", _examples),
    Points: ("points", _points),
}
