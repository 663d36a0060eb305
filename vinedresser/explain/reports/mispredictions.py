"""Wrong predictions by loss, grouped by true and predicted class."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.explain.charts.images import colour_png, mosaic
from vinedresser.explain.formatting import count, number
from vinedresser.explain.reports.confusion import class_pairs, confusion, confusion_chart
from vinedresser.explain.reports.hard_examples import (
    HardExamples,
    RankedRow,
    class_name,
    described,
    example_tiles,
    ranked_rows,
)
from vinedresser.explain.reports.last_batches import LastBatches, last_batches
from vinedresser.explain.reports.templating import write_page
from vinedresser.store.reading.reader import Run

__all__ = ["Mispredictions", "mispredictions", "mispredictions_png", "write_mispredictions"]

# Cells of the confusion matrix, and examples of each.
_MOST_CELLS, _MOST_EXAMPLES = 16, 12
_LEAST_PIXELS = 64


@dataclass(frozen=True)
class _Cell:
    """Rows of one true and one predicted class.

    Attributes:
        title: such as "cat predicted as dog".
        rows: the rows by decreasing loss.
    """

    title: str
    rows: Sequence[RankedRow]

    @property
    def note(self) -> str:
        """Number of rows and their mean loss as text."""
        mean = float(np.mean([row.loss for row in self.rows]))
        shown = min(len(self.rows), _MOST_EXAMPLES)
        most = f"{shown} of {len(self.rows)} rows" if shown < len(self.rows) else ""
        return f"{most or count(shown, 'row')}, mean loss {number(mean, 3)}"


@dataclass(frozen=True)
class Mispredictions:
    """Wrong predictions of some batches.

    Attributes:
        cells: cells of the confusion matrix off its diagonal, the most frequent first; for labels
            that are not classes, a single cell with the rows of the highest loss.
        wrong: number of wrong rows; None if the labels are not classes.
    """

    run: Run
    seen: LastBatches
    cells: Sequence[_Cell]
    wrong: int | None


def mispredictions(run: Run, *, step: int | None = None) -> Mispredictions:
    """Return the wrong predictions of the last evaluation, or else of the last train steps.

    Args:
        step: the evaluation or train step; None: the last one.

    Raises:
        ConfigError: labels and predictions of a known loss were not captured there.
    """
    seen = last_batches(run, at=step)
    ranked = ranked_rows(seen) if seen is not None else []
    if seen is None or not ranked:
        where = "" if step is None else f" at step {step}"
        raise ConfigError(
            f"{run.path}: no labels and predictions of a loss with a loss per row were captured"
            f"{where}; set [capture.labels], [capture.predictions] and [capture.model_inputs] "
            "every = 20, rows = 64"
        )
    if seen.task not in ("classes", "binary"):
        return Mispredictions(run, seen, [_Cell("highest loss", ranked)], None)
    cells: dict[tuple[int, int], list[RankedRow]] = defaultdict(list)
    pairs = {id(batch): class_pairs(seen, batch) for batch in seen.batches}
    for row in ranked:
        pair = pairs[id(row.batch)]
        if pair is not None and pair[0][row.row] != pair[1][row.row]:
            cells[int(pair[0][row.row]), int(pair[1][row.row])].append(row)
    names = run.info.classes
    ordered = sorted(cells.items(), key=lambda one: -len(one[1]))
    found = [
        _Cell(f"{class_name(truth, names)} predicted as {class_name(guess, names)}", rows)
        for (truth, guess), rows in ordered
    ]
    return Mispredictions(run, seen, found, sum(map(len, cells.values())))


def write_mispredictions(found: Mispredictions, destination: str | os.PathLike[str]) -> Path:
    """Write the wrong predictions by confusion cell: one self-contained HTML file.

    Args:
        destination: file to write; replaced atomically, its directory is created.

    Raises:
        StoreError: the file cannot be written.
    """
    seen, info = found.seen, found.run.info
    data = confusion(seen, info.classes)
    cells = [(cell, _described(found, cell)) for cell in found.cells[:_MOST_CELLS]]
    return write_page(
        destination,
        "mispredictions.html.j2",
        name=info.name,
        where=seen.where,
        loss=seen.loss,
        wrong=found.wrong,
        right=None if data is None else f"{data.right:.1%}",
        chart=None if data is None else confusion_chart(data),
        cells=cells,
        left_out=len(found.cells) - len(cells),
    )


def mispredictions_png(found: Mispredictions) -> bytes:
    """Return a PNG: a row of images per confusion cell, by decreasing loss.

    Raises:
        ConfigError: no prediction is wrong, or the inputs are not images.
    """
    last = found.run.info.framework == "keras"
    rows: list[list[NDArray[np.float64]]] = [
        example_tiles(found.seen, cell.rows[:_MOST_EXAMPLES], channels_last=last)
        for cell in found.cells[:_MOST_CELLS]
    ]
    if not rows:
        raise ConfigError(f"{found.run.path}: no prediction is wrong; there is nothing to draw")
    if not all(rows):
        raise ConfigError(
            f"{found.run.path}: the inputs are not images, or were not captured; use .html"
        )
    factor = max(1, -(-_LEAST_PIXELS // max(rows[0][0].shape[:2])))
    enlarged = [[one.repeat(factor, 0).repeat(factor, 1) for one in row] for row in rows]
    return colour_png(mosaic(enlarged))


def _described(found: Mispredictions, cell: _Cell) -> HardExamples:
    info = found.run.info
    last = info.framework == "keras"
    rows = cell.rows[:_MOST_EXAMPLES]
    return described(found.seen, rows, info.classes, info.features, channels_last=last)
