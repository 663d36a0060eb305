"""Captured saliency over the steps as a page or a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vinedresser.errors import ConfigError
from vinedresser.explain.charts.figure import Figure
from vinedresser.explain.reports.templating import write_page
from vinedresser.explain.saliency.captured.reading import CapturedSaliency
from vinedresser.explain.saliency.parts import largest_parts
from vinedresser.explain.saliency.sheets import SheetRow, Tile, sheet, sheet_png, tiles
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import Run

# Each has two pictures in a row, with room for their text.
_EXAMPLES = 3


def write_captured_saliency(
    run: Run, found: Sequence[CapturedSaliency], destination: str | os.PathLike[str]
) -> Path:
    """Write captured saliency, a row of examples for each step, as an HTML page or a PNG of images.

    Args:
        found: the explanations, at least one.
        destination: .html or .png file; replaced atomically, its directory is created.

    Raises:
        ConfigError: a PNG is asked for, and the examples are not images.
        StoreError: the file cannot be written.
    """
    path = Path(destination)
    maps = found[0].result.map
    rows = _rows(run, found) if maps is not None and maps.ndim == 3 else []
    if path.suffix.lower() == ".png":
        if not rows:
            raise ConfigError(f"{path}: the inputs are not images; use .html")
        LocalStorage(path.parent).put(path.name, [sheet_png(rows)])
        return path
    return write_page(
        path,
        "saliency_steps.html.j2",
        name=run.info.name,
        what=(
            "FullGrad of the loss, from captured tensors: what raises the loss (orange) or lowers "
            "it (blue), to first order; each step has its own examples"
        ),
        part="contribution to the loss: input times its gradient",
        figure=Figure("", "", sheet("", rows)) if rows else None,
        tables=[] if rows else [_table(run, one) for one in found],
        checks=[(one.step, str(one.result)) for one in found],
    )


def _rows(run: Run, found: Sequence[CapturedSaliency]) -> list[SheetRow]:
    """Return a row per step: examples with their maps."""
    return [
        SheetRow(
            f"step {one.step:,}",
            [tile for pair in _captured_tiles(run, one)[:_EXAMPLES] for tile in pair],
        )
        for one in found
    ]


def _table(run: Run, one: CapturedSaliency) -> tuple[str, list[str], list[list[str]]]:
    """Return the title, heads and rows of a table of a step: a row per example."""
    rows = [
        [_class_of(run, one, place) or str(place), *largest_parts(run, example, one.result, place)]
        for place, example in enumerate(one.inputs)
    ]
    most = max(map(len, rows), default=1) - 1
    return f"step {one.step:,}", ["example", "largest", *[""] * (most - 1)][: most + 1], rows


def _class_of(run: Run, one: CapturedSaliency, place: int) -> str:
    """Return the predicted class of an example, and the true one if it differs; "" if unknown."""
    if one.predicted is None:
        return ""
    guess = _named(run, int(one.predicted[place]))
    truth = guess if one.true is None else _named(run, int(one.true[place]))
    return guess if truth == guess else f"{truth}, predicted {guess}"


def _captured_tiles(run: Run, one: CapturedSaliency) -> list[tuple[Tile, Tile]]:
    """Return each example, and its map laid over it.

    Raises:
        SaliencyError: the examples are not images.
    """
    pairs = tiles(one.inputs, one.result)
    return [
        (image._replace(lines=tuple(filter(None, [_class_of(run, one, place)]))), drawn)
        for place, (image, drawn) in enumerate(pairs)
    ]


def _named(run: Run, number: int) -> str:
    names = run.info.classes
    return names[number] if number < len(names) else str(number)
