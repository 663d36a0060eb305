"""Baselines on disk: a JSON document and a safetensors file, which hold data and never code."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.drift.contents import Column, Contents, Correctness
from vinedresser.drift.cycle import Cycle
from vinedresser.drift.encoders import (
    CategoryEncoder,
    EmbeddingEncoder,
    Encoder,
    NumberEncoder,
)
from vinedresser.drift.evidence.bins import BINS, Edges
from vinedresser.drift.evidence.dependence import TOO_FAR, correlations_shape
from vinedresser.errors import CorruptData, DriftError, KeyMissing, StoreError
from vinedresser.objects.local import LocalStorage
from vinedresser.store.json_values import DAMAGE, known_fields, parse_json

__all__ = ["load", "save"]

_DOCUMENT, _ARRAYS = "baseline.json", "baseline.safetensors"
# Baselines of version 1 have no cycle and no checksums, and up to version 2 none says whether its
# rows are in time order. They are read, too.
_VERSION = 3
_SINCE = {"cycle": 2, "arrays": 2, "checksum": 2, "in_time_order": 3}
# Largest files that are read, in bytes.
_MOST_DOCUMENT, _MOST_ARRAYS = 64 << 20, 1 << 30


@dataclass(frozen=True)
class _Document:
    """Contents of the JSON file.

    Args:
        seed: see `Contents`.
        accuracy: see `Contents`; None if unknown.
        columns: fields of each `Column`.
        categories: of each column of categories: what its sample consists of.
        codes: of each column of categories: see `CategoryEncoder`.
        cycle: fields of the `Cycle`; None if there is none, as in version 1.
        in_time_order: see `Contents`; from version 3 on.
        arrays: SHA-256 of the safetensors file, in hexadecimal digits.
        checksum: SHA-256 of the other fields as JSON with sorted keys.
    """

    version: int
    seed: int
    accuracy: float | None
    columns: list[dict[str, Any]]
    categories: dict[str, list[str]]
    codes: dict[str, dict[str, float]]
    cycle: dict[str, Any] | None = None
    in_time_order: bool | None = None
    arrays: str = ""
    checksum: str = ""

    def digest(self) -> str:
        """Return the checksum that it should have."""
        fields_of = asdict(replace(self, checksum=""))
        for name, first in _SINCE.items():
            if self.version < first:
                del fields_of[name]
        return hashlib.sha256(json.dumps(fields_of, sort_keys=True).encode()).hexdigest()


def save(baseline: Contents, folder: str | Path) -> None:
    """Write a baseline.

    Args:
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
        shown = baseline.correctness
        arrays["labels_order"] = np.array([shown.labels, shown.distance], np.int64)
        arrays["labels_usual"] = shown.usual
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
    cycle = None if baseline.cycle is None else asdict(baseline.cycle)
    arrays |= {"phase": baseline.phase, "usual": baseline.usual}
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = packed(contiguous)
    document = _Document(
        _VERSION,
        baseline.seed,
        accuracy,
        columns,
        categories,
        codes,
        cycle,
        baseline.in_time_order,
        arrays=hashlib.sha256(content).hexdigest(),
    )
    document = replace(document, checksum=document.digest())
    storage.put(_ARRAYS, [content])
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
        content = _read(folder, _ARRAYS, _MOST_ARRAYS)
        if document.version > 1 and document.arrays != hashlib.sha256(content).hexdigest():
            raise ValueError(f"{_ARRAYS} is damaged: its checksum is another")
        return _baseline(document, unpacked(content))
    except KeyMissing as error:
        raise DriftError(f"{folder}: holds no baseline: {error}") from error
    except (StoreError, CorruptData, SafetensorError, *DAMAGE) as error:
        raise DriftError(f"{folder}: not a readable baseline: {error}") from error


def _read(folder: str | Path, key: str, most: int) -> bytes:
    found = LocalStorage(folder).get(key, 0, most + 1)
    if len(found) > most:
        raise ValueError(f"{key} is larger than {most >> 20} MiB")
    return found


def _document(text: bytes) -> _Document:
    found = known_fields(_Document, parse_json(text))
    version = found.get("version", _VERSION)
    if not 1 <= version <= _VERSION:
        raise ValueError(f"{_DOCUMENT} has version {version}, expected {_VERSION}")
    later = {name for name, first in _SINCE.items() if version < first}
    if missing := {field.name for field in fields(_Document)} - set(found) - later:
        raise ValueError(f"{_DOCUMENT} has no {min(missing)!r}")
    document = _Document(**found)
    if document.version > 1 and document.checksum != document.digest():
        raise ValueError(f"{_DOCUMENT} is damaged: its checksum does not fit its contents")
    return document


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
            values = _categories(column.name, values, document.categories[column.name])
            encoders[column.name] = CategoryEncoder(document.codes[column.name])
        elif column.kind == "embedding":
            centre, axes = arrays[f"{number}/centre"], arrays[f"{number}/axes"]
            if centre.shape != (column.width,) or axes.ndim != 2 or len(axes) != column.width:
                raise ValueError(f"the axes of {column.name!r} have another shape")
            encoders[column.name] = EmbeddingEncoder(centre, axes)
        sample[column.name] = values
    streams = sum(len(encoders[one.name].streams) for one in columns if one.monitored)
    cycle = None if document.cycle is None else Cycle(**known_fields(Cycle, document.cycle))
    if cycle is not None and not (cycle.length > 0 and cycle.phases >= 1):
        raise ValueError(f"{_DOCUMENT}: cycle: expected a positive length and number of phases")
    phases = 1 if cycle is None else cycle.phases
    phase, usual = np.zeros(rows, np.int64), np.zeros(correlations_shape(streams))
    if document.version > 1:
        phase, usual = arrays["phase"], arrays["usual"]
        if phase.shape != (rows,) or not np.isin(phase, np.arange(phases)).all():
            raise ValueError(f"phase: expected {rows} phases below {phases}")
        if usual.shape != correlations_shape(streams) or not np.isfinite(usual).all():
            raise ValueError("usual: expected correlations of each stream")
    else:
        # Edges of a single phase, without its axis.
        edged = [name for name in arrays if name.startswith(("edges/", "correct/"))]
        arrays |= {name: np.expand_dims(arrays[name], -2) for name in edged}
    correct = _edges("correct", arrays, 1, 1) if "correct/rows" in arrays else None
    accuracy = float("nan") if document.accuracy is None else document.accuracy
    edges = _edges("edges", arrays, streams, phases)
    return Contents(
        columns=columns,
        sample=sample,
        encoders=encoders,
        edges=edges,
        correct=correct,
        accuracy=accuracy,
        correctness=_correctness(arrays),
        seed=document.seed,
        cycle=cycle,
        phase=phase,
        usual=usual,
        in_time_order=_in_time_order(document, columns, usual),
    )


def _correctness(arrays: dict[str, NDArray[Any]]) -> Correctness:
    """Return what labels in time order show; earlier versions did not keep it."""
    if "labels_order" not in arrays:
        return Correctness.unknown()
    order, usual = arrays["labels_order"], arrays["labels_usual"]
    if order.shape != (2,) or order.dtype != np.int64 or not 1 <= order[1] <= TOO_FAR:
        raise ValueError("labels_order: expected a number of labels and a distance")
    if usual.shape != correlations_shape(1) or not np.isfinite(usual).all():
        raise ValueError("labels_usual: expected correlations of a single stream")
    return Correctness(int(order[0]), int(order[1]), usual)


def _in_time_order(
    document: _Document, columns: tuple[Column, ...], usual: NDArray[Any]
) -> bool | None:
    """Return whether the rows of a baseline are in time order; see `Contents`."""
    if document.version >= _SINCE["in_time_order"]:
        return document.in_time_order
    # Only of rows in time order was anything of their dependence kept.
    return True if usual.any() or any(column.distance > 1 for column in columns) else None


def _categories(column: str, places: NDArray[Any], names: list[str]) -> NDArray[Any]:
    """Return the categories of a sample by their places; -1 stands for a missing value."""
    if places.size and not -1 <= places.min() <= places.max() < len(names):
        raise ValueError(
            f"the sample of {column!r} has categories {places.min()} to {places.max()}, but there "
            f"are {len(names)}"
        )
    found: NDArray[Any] = np.array([*names, None], object)[places]
    return found


def _edge_arrays(name: str, edges: Edges) -> dict[str, NDArray[Any]]:
    return {f"{name}/{part}": getattr(edges, part) for part in ("values", "ties", "rows")}


def _edges(name: str, arrays: dict[str, NDArray[Any]], streams: int, phases: int) -> Edges:
    values, ties, rows = (arrays[f"{name}/{part}"] for part in ("values", "ties", "rows"))
    shape = (BINS - 1, phases, streams)
    if values.shape != shape or ties.shape != shape or rows.shape != (phases, streams):
        raise ValueError(f"{name}: expected {streams} streams in {phases} phases")
    if rows.dtype != np.int64 or (rows < 1).any():
        raise ValueError(f"{name}: expected numbers of rows")
    return Edges(values, ties, rows)
