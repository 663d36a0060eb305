"""Saliency over the steps as a page or a picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from vinedresser.errors import ConfigError
from vinedresser.explain.charts.figure import Figure
from vinedresser.explain.formatting import number
from vinedresser.explain.reports.templating import write_page
from vinedresser.explain.saliency.over_steps.explaining import SaliencyOverSteps
from vinedresser.explain.saliency.parts import contributions, part_name
from vinedresser.explain.saliency.sheets import SheetRow, sheet, sheet_png, tiles
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run

# Features or tokens of an example in a table.
_MOST_PARTS = 24


def write_saliency_steps(
    run: Run, found: SaliencyOverSteps, destination: str | os.PathLike[str]
) -> Path:
    """Write the saliency of each example over the steps as an HTML page, or a PNG of images.

    Images are shown with their maps. Rows of features and token ids are shown with a number per
    feature or token: its share of the output, input times gradient.

    Args:
        found: the explanations.
        destination: .html or .png file; replaced atomically, its directory is created.

    Raises:
        ConfigError: a PNG is asked for, and the examples are not images.
        StoreError: the file cannot be written.
    """
    path = Path(destination)
    maps = found.results[0].map
    images = maps is not None and maps.ndim == 3
    if path.suffix.lower() == ".png":
        if not images:
            raise ConfigError(f"{path}: the inputs are not images; use .html")
        LocalStorage(path.parent).put(path.name, [sheet_png(_sheet_rows(run, found))])
        return path
    figure = None
    if images:
        figure = Figure("", "", sheet(f"steps {_listed(found)}", _sheet_rows(run, found)))
    return write_page(
        path,
        "saliency_steps.html.j2",
        name=run.info.name,
        figure=figure,
        what=f"FullGrad of the class predicted at the last step; examples of {found.origin}",
        part="contribution to the output: input times gradient",
        tables=[] if images else _tables(run, found),
        checks=[(step, str(one)) for step, one in zip(found.steps, found.results, strict=True)],
    )


def _listed(found: SaliencyOverSteps) -> str:
    return ", ".join(f"{step:,}" for step in found.steps)


def _sheet_rows(run: Run, found: SaliencyOverSteps) -> list[SheetRow]:
    """Return a row per example: the image, and its map at each step."""
    last = run.info.framework == "keras"
    pairs = [
        tiles(found.inputs, result, classes=run.info.classes, channels_last=last)
        for result in found.results
    ]
    rows = []
    for place in range(len(found.inputs)):
        maps = [
            shown[place][1]._replace(lines=(f"step {step:,}", *shown[place][0].lines))
            for step, shown in zip(found.steps, pairs, strict=True)
        ]
        rows.append(SheetRow("", [pairs[-1][place][0]._replace(lines=()), *maps]))
    return rows


def _tables(run: Run, found: SaliencyOverSteps) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return a table per example: a row per feature or token, and a column per step."""
    tables = []
    heads = ["step", *(f"{step:,}" for step in found.steps)]
    for place, example in enumerate(found.inputs):
        parts = np.stack([contributions(result, place) for result in found.results])
        shown = np.sort(np.argsort(-np.abs(parts[-1]), kind="stable")[:_MOST_PARTS])
        target = int(found.results[-1].targets[place])
        classes = run.info.classes
        name = classes[target] if target < len(classes) else f"output {target}"
        rows = [
            [
                part_name(run, example, int(one)),
                *(number(float(value), 3) for value in parts[:, one]),
            ]
            for one in shown
        ]
        outputs = [number(float(result.outputs[place]), 4) for result in found.results]
        tables.append((f"example {place}: {name}", heads, [["output", *outputs], *rows]))
    return tables
