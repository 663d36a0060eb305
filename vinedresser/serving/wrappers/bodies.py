"""Inputs and outputs in the JSON bodies of requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["read_bodies"]

# Entries of a body that hold several requests, as in the protocols of MLflow, TensorFlow Serving
# and others; the first one found counts.
_INPUTS = ("inputs", "instances", "dataframe_records")
_OUTPUTS = ("predictions", "outputs")


def read_bodies(request: Any, response: Any) -> tuple[Any, Any]:
    """Return inputs and outputs from decoded bodies.

    Several requests are a list, or an entry "inputs", "instances", "dataframe_records" or
    "dataframe_split" of an object; their outputs are a list, or an entry "predictions" or
    "outputs". Any other value is a single request or its output, such as
    ``{"age": 42, "city": "Bern"}`` and ``{"prediction": "yes", "confidence": 0.9}``.

    Args:
        request: decoded body of the request.
        response: decoded body of the response.

    Raises:
        ValueError: the columns of "dataframe_split" do not fit its data.
    """
    return _several(request, _INPUTS), _several(response, _OUTPUTS)


def _several(body: Any, entries: tuple[str, ...]) -> Any:
    if not isinstance(body, Mapping):
        return body
    split = body.get("dataframe_split")
    if isinstance(split, Mapping):
        rows = split["data"]
        return [dict(zip(split["columns"], row, strict=True)) for row in rows]
    entry = next((one for one in entries if isinstance(body.get(one), list | dict)), None)
    if entry is not None:
        return body[entry]
    return {name: [value] for name, value in body.items()}
