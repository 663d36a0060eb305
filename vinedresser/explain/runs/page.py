"""The explanation of a run as a page."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.examples.pictures import cell_sheet, contact_rows
from vinedresser.explain.formatting import number
from vinedresser.explain.reports.templating import write_page
from vinedresser.explain.runs.explaining import RunExplanation
from vinedresser.explain.saliency import sheet
from vinedresser.explain.saliency.parts import largest_parts

__all__ = ["write_run_explanation"]


def write_run_explanation(found: RunExplanation, destination: str | os.PathLike[str]) -> Path:
    """Write the explanation of a run: one self-contained HTML file.

    Args:
        found: the explanation.
        destination: file to write; replaced atomically, its directory is created.

    Returns:
        Path of the file.

    Raises:
        StoreError: the file cannot be written.
    """
    maps = found.examples.result.map
    images = maps is not None and maps.ndim == 3
    return write_page(
        destination,
        "run_explanation.html.j2",
        name=found.run.info.name,
        what=found.what,
        origin=found.origin,
        completeness=str(found.examples.result),
        cells=_cells(found) if images else [],
        contacts=sheet("", contact_rows("", found.examples)) if images else None,
        rows=[] if images else _rows(found),
        records=found.origins,
        examples=_named(found) if images and found.origins else [],
    )


def _cells(found: RunExplanation) -> list[tuple[str, Svg]]:
    return [(group.title, cell_sheet(found.examples, group, of=found.of)) for group in found.groups]


def _named(found: RunExplanation) -> list[tuple[str, str, str]]:
    """Return true class, predicted class and record of each example."""
    made = found.examples
    return [
        (true or "", predicted, record)
        for true, predicted, record in zip(made.true, made.classes, found.origins, strict=True)
    ]


def _rows(found: RunExplanation) -> list[list[str]]:
    """Return a row per example: classes, confidence, completeness error, largest contributions.

    Those of the groups come first.
    """
    made = found.examples
    grouped = dict.fromkeys(place for group in found.groups for place in group.places)
    places = [*grouped, *(one for one in range(len(made.classes)) if one not in grouped)]
    errors = made.result.completeness_error
    return [
        [
            made.true[place] or "",
            made.classes[place],
            "" if np.isnan(made.confidence[place]) else f"{made.confidence[place]:.0%}",
            number(float(errors[place]), 1),
            ", ".join(largest_parts(found.run, made.inputs[place], made.result, place)),
            *found.origins[place : place + 1],
        ]
        for place in places
    ]
