"""The page and the picture of embeddings over the steps.

Shape legend: N examples.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.figure import Figure, Section
from vinedresser.explain.charts.images import colour_png, mosaic
from vinedresser.explain.charts.scatter import (
    Colours,
    class_colours,
    one_colour,
    scatter,
    scatter_pixels,
    value_colours,
)
from vinedresser.explain.embeddings.projection import aligned, neighbour_agreement, pca, tsne
from vinedresser.explain.embeddings.reading import Activations
from vinedresser.explain.formatting import count
from vinedresser.explain.reports.templating import write_page

__all__ = ["Embeddings", "embed", "embeddings_png", "write_embeddings"]

_SIZE, _PIXELS = 300.0, 320
_ALIGNED = "all steps in one scale, each aligned with the previous one"


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Positions of the examples at each step.

    Attributes:
        pca: principal components, float64 [N, 2] for each step.
        shares: shares of the variance of the components, float64 [2] for each step.
        tsne: t-SNE, float64 [N, 2] for each step.
    """

    activations: Activations
    pca: Sequence[NDArray[np.float64]]
    shares: Sequence[NDArray[np.float64]]
    tsne: Sequence[NDArray[np.float64]]


def embed(activations: Activations) -> Embeddings:
    """Project activations to planes by PCA and t-SNE, each step aligned with the previous one.

    Features that are not finite are replaced by 0.

    Raises:
        MissingDependency: scikit-learn is not installed.
    """
    values = [np.nan_to_num(value, posinf=0.0, neginf=0.0) for value in activations.values]
    components = [pca(value) for value in values]
    return Embeddings(
        activations,
        aligned([scores for scores, _ in components]),
        [shares for _, shares in components],
        aligned(tsne(values)),
    )


def write_embeddings(
    found: Embeddings,
    destination: str | os.PathLike[str],
    *,
    title: str,
    classes: Sequence[str] = (),
) -> Path:
    """Write the embeddings of all steps: one self-contained HTML file without scripts.

    Args:
        destination: file to write; replaced atomically, its directory is created.
        title: name of the run.
        classes: names of the classes.

    Raises:
        StoreError: the file cannot be written.
    """
    data = found.activations
    colours = _colours(data, classes)
    notes = [f"{shares.sum():.0%} of the variance" for shares in found.shares]
    if data.labels is not None and data.labels.dtype.kind == "i":
        agreement = [
            neighbour_agreement(np.nan_to_num(value), data.labels) for value in data.values
        ]
    else:
        agreement = []
    silent = [""] * len(data.steps)
    sections = [
        Section("pca", "Principal components", _ALIGNED, _figures(data, found.pca, notes, colours)),
        Section("tsne", "t-SNE", _ALIGNED, _figures(data, found.tsne, silent, colours)),
    ]
    return write_page(
        destination,
        "embeddings.html.j2",
        name=data.name,
        title=title,
        facts=_facts(data),
        notes=_notes(data),
        sections=sections,
        legend=colours.legend,
        agreement=list(zip(data.steps, agreement, strict=False)),
    )


def embeddings_png(found: Embeddings, classes: Sequence[str] = ()) -> bytes:
    """Return a PNG: principal components above t-SNE, a column per step."""
    colours = _colours(found.activations, classes)
    rows = [
        [scatter_pixels(point, colours, _extent(points), _PIXELS) for point in points]
        for points in (found.pca, found.tsne)
    ]
    return colour_png(mosaic(rows))


def _figures(
    data: Activations,
    points: Sequence[NDArray[np.float64]],
    notes: Sequence[str],
    colours: Colours,
) -> list[Figure]:
    """Return a chart per step, all in one scale; points: float64 [N, 2] each."""
    extent = _extent(points)
    return [
        Figure(f"step {step:,}", note, scatter(one, colours, extent, _SIZE, f"step {step}"))
        for step, one, note in zip(data.steps, points, notes, strict=True)
    ]


def _extent(points: Sequence[NDArray[np.float64]]) -> float:
    """Return the largest coordinate of all steps; float64 [N, 2] each."""
    return max(float(np.abs(point).max()) for point in points)


def _colours(data: Activations, classes: Sequence[str]) -> Colours:
    if data.labels is None:
        return one_colour(len(data.values[0]))
    if data.labels.dtype.kind == "i":
        return class_colours(data.labels, classes)
    return value_colours(data.labels)


def _facts(data: Activations) -> list[tuple[str, str]]:
    examples, features = data.values[0].shape
    return [
        ("Examples", f"{examples:,}"),
        ("Features", f"{features:,}"),
        ("Mode", data.mode),
        ("Steps", f"{len(data.steps)} of {data.captured:,}"),
    ]


def _notes(data: Activations) -> list[str]:
    notes = []
    if data.averaged:
        notes.append(f"means over the {data.averaged}")
    if data.same == "unknown":
        notes.append("no inputs were captured: rows are taken to be the same examples at all steps")
    if data.labels is None:
        notes.append("no labels that are the same at all steps were captured")
    broken = sum(int((~np.isfinite(value)).any(1).sum()) for value in data.values)
    if broken:
        notes.append(f"not finite in {count(broken, 'row')}, drawn as 0")
    return notes
