"""Baselines on disk: a JSON document and a safetensors file, which hold data and never code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.contents import Column, Contents
from vinedresser.drift.encoders import (
    CategoryEncoder,
    EmbeddingEncoder,
    Encoder,
    NumberEncoder,
)
from vinedresser.drift.evidence.bins import BINS, Edges
from vinedresser.errors import CorruptData, DriftError, KeyMissing, StoreError
from vinedresser.store.json_values import known_fields
from vinedresser.store.storage.local import LocalStorage

__all__ = ["load", "save"]

_DOCUMENT, _ARRAYS = "baseline.json", "baseline.safetensors"
_VERSION = 1
# Largest files that are read, in bytes.
_MOST_DOCUMENT, _MOST_ARRAYS = 64 << 20, 1 << 30


@dataclass(frozen=True)
class _Document:
    """Contents of the JSON file.

    Args:
        version: of the format.
        seed: see `Contents`.
        accuracy: see `Contents`; None if unknown.
        columns: fields of each `Column`.
        categories: of each column of categories: what its sample consists of.
        codes: of each column of categories: see `CategoryEncoder`.
    """

    version: int
    seed: int
    accuracy: float | None
    columns: list[dict[str, Any]]
    categories: dict[str, list[str]]
    codes: dict[str, dict[str, float]]


def save(baseline: Contents, folder: str | Path) -> None:
    """Write a baseline.

    Args:
        baseline: the baseline.
        folder: directory, created if missing, for ``baseline.json`` and ``baseline.safetensors``.

    Raises:
        DriftError: the folder has a baseline already.
        StoreError: a file cannot be written.
    """
    from safetensors.numpy import save as packed

    storage = LocalStorage(folder)
    if storage.exists(_DOCUMENT):
        raise DriftError(f"{folder}: has a baseline already; choose another folder")
    arrays = _edge_arrays("edges", baseline.edges)
    if baseline.correct is not None:
        arrays |= _edge_arrays("correct", baseline.correct)
    categories, codes = {}, {}
    for number, column in enumerate(baseline.columns):
        encoder, sample = baseline.encoders[column.name], baseline.sample[column.name]
        if isinstance(encoder, CategoryEncoder):
            names = sorted({one for one in sample.tolist() if one is not None})
            places = {one: place for place, one in enumerate(names)}
            sample = np.array([places.get(one, -1) for one in sample.tolist()], np.int64)
            categories[column.name], codes[column.name] = names, encoder.codes
        elif isinstance(encoder, EmbeddingEncoder):
            arrays[f"{number}/centre"], arrays[f"{number}/axes"] = encoder.centre, encoder.axes
        arrays[f"{number}/sample"] = sample
    accuracy = None if np.isnan(baseline.accuracy) else baseline.accuracy
    columns = [asdict(one) for one in baseline.columns]
    document = _Document(_VERSION, baseline.seed, accuracy, columns, categories, codes)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    storage.put(_ARRAYS, [packed(contiguous)])
    # Last: with it, the baseline is complete.
    storage.put(_DOCUMENT, [json.dumps(asdict(document), indent=1).encode(), b"\n"])


def load(folder: str | Path) -> Contents:
    """Return a saved baseline.

    Args:
        folder: see `save`.

    Raises:
        DriftError: a file is missing, damaged, too large or not a regular file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpacked

    try:
        document = _document(_read(folder, _DOCUMENT, _MOST_DOCUMENT))
        return _baseline(document, unpacked(_read(folder, _ARRAYS, _MOST_ARRAYS)))
    except KeyMissing as error:
        raise DriftError(f"{folder}: holds no baseline: {error}") from error
    except (
        StoreError,
        CorruptData,
        SafetensorError,
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
    ) as error:
        raise DriftError(f"{folder}: not a readable baseline: {error}") from error


def _read(folder: str | Path, key: str, most: int) -> bytes:
    found = LocalStorage(folder).get(key, 0, most + 1)
    if len(found) > most:
        raise ValueError(f"{key} is larger than {most >> 20} MiB")
    return found


def _document(text: bytes) -> _Document:
    found = known_fields(_Document, json.loads(text))
    if missing := {one.name for one in fields(_Document)} - set(found):
        raise ValueError(f"{_DOCUMENT} has no {min(missing)!r}")
    if found["version"] != _VERSION:
        raise ValueError(f"{_DOCUMENT} has version {found['version']}, expected {_VERSION}")
    return _Document(**found)


def _baseline(document: _Document, arrays: dict[str, NDArray[Any]]) -> Contents:
    columns = tuple(Column(**known_fields(Column, one)) for one in document.columns)
    sample: dict[str, NDArray[Any]] = {}
    encoders: dict[str, Encoder] = {}
    rows = len(arrays["0/sample"])
    for number, column in enumerate(columns):
        values = arrays[f"{number}/sample"]
        shape = (rows, column.width) if column.kind == "embedding" else (rows,)
        expected = np.int64 if column.kind == "category" else np.float64
        if values.shape != shape or values.dtype != expected:
            raise ValueError(f"the sample of {column.name!r} has another shape or type")
        encoders[column.name] = NumberEncoder()
        if column.kind == "category":
            names = np.array([*document.categories[column.name], None], object)
            values = names[values]
            encoders[column.name] = CategoryEncoder(document.codes[column.name])
        elif column.kind == "embedding":
            centre, axes = arrays[f"{number}/centre"], arrays[f"{number}/axes"]
            if centre.shape != (column.width,) or axes.ndim != 2 or len(axes) != column.width:
                raise ValueError(f"the axes of {column.name!r} have another shape")
            encoders[column.name] = EmbeddingEncoder(centre, axes)
        sample[column.name] = values
    streams = sum(len(encoders[one.name].streams) for one in columns if one.monitored)
    correct = _edges("correct", arrays, 1) if "correct/rows" in arrays else None
    accuracy = float("nan") if document.accuracy is None else document.accuracy
    edges = _edges("edges", arrays, streams)
    return Contents(
        columns=columns,
        sample=sample,
        encoders=encoders,
        edges=edges,
        correct=correct,
        accuracy=accuracy,
        seed=document.seed,
    )


def _edge_arrays(name: str, edges: Edges) -> dict[str, NDArray[Any]]:
    return {f"{name}/{part}": getattr(edges, part) for part in ("values", "ties", "rows")}


def _edges(name: str, arrays: dict[str, NDArray[Any]], streams: int) -> Edges:
    values, ties, rows = (arrays[f"{name}/{part}"] for part in ("values", "ties", "rows"))
    shape = (BINS - 1, streams)
    if values.shape != shape or ties.shape != shape or rows.shape != (streams,):
        raise ValueError(f"{name}: expected {streams} streams")
    if rows.dtype != np.int64 or (rows < 1).any():
        raise ValueError(f"{name}: expected numbers of rows")
    return Edges(values, ties, rows)
