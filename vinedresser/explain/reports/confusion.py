"""Confusion matrix: counts, and their chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.svg import Svg, chart, element
from vinedresser.explain.formatting import shortened
from vinedresser.explain.reports.last_batches import Batch, LastBatches
from vinedresser.rules.signals.losses.loss_formulas import class_indices

__all__ = ["Confusion", "class_pairs", "confusion", "confusion_chart"]

_MOST_CLASSES = 16
_WIDEST_CELL, _MOST_WIDTH = 40.0, 520.0
_CHARACTER, _LONGEST = 6.3, 18
_TOP, _BOTTOM = 40.0, 6.0
# A darker cell has light text.
_DARK = 0.55


@dataclass(frozen=True, eq=False)
class Confusion:
    """Confusion matrix of the classes with the most errors.

    Shape legend: C shown classes.

    Attributes:
        classes: names of the shown classes [C].
        counts: rows by true and predicted class, int64 [C, C].
        total: rows of each class, including those predicted as a class not shown, int64 [C].
        right: share of all rows with a correct prediction.
        known: number of all classes.
        left_out: number of batches left out because predictions are not finite.
    """

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    total: NDArray[np.int64]
    right: float
    known: int
    left_out: int


def confusion(seen: LastBatches, names: Sequence[str]) -> Confusion | None:
    """Count predictions by true class, for the classes with the most errors.

    Args:
        names: class names by class number; classes without a name are named by their number.

    Returns:
        None if the labels are not classes.
    """
    if seen.task not in ("classes", "binary"):
        return None
    pairs = [pair for batch in seen.batches if (pair := class_pairs(seen, batch)) is not None]
    if not pairs:
        return None
    widths = [batch.compared.predictions.shape[-1] for batch in seen.batches]
    classes = 2 if seen.task == "binary" else max(widths)
    truth, predicted = (np.concatenate([pair[place] for pair in pairs]) for place in (0, 1))
    # Only pairs that occur: a matrix of all classes may be too large.
    cells, amounts = np.unique(np.stack([truth, predicted]), axis=1, return_counts=True)
    wrong = cells[0] != cells[1]
    errors = np.bincount(cells[0][wrong], amounts[wrong], classes)
    errors += np.bincount(cells[1][wrong], amounts[wrong], classes)
    shown = np.sort(np.argsort(-errors, kind="stable")[:_MOST_CLASSES])
    counts = np.zeros((len(shown), len(shown)), np.int64)
    inside = np.isin(cells, shown).all(axis=0)
    counts[tuple(np.searchsorted(shown, cells[:, inside]))] = amounts[inside]
    return Confusion(
        classes=tuple(names[n] if n < len(names) else str(n) for n in shown.tolist()),
        counts=counts,
        total=np.bincount(truth, minlength=classes)[shown].astype(np.int64),
        right=float((truth == predicted).mean()),
        known=classes,
        left_out=len(seen.batches) - len(pairs),
    )


def class_pairs(
    seen: LastBatches, batch: Batch
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the true and predicted classes of a batch of classes.

    Args:
        seen: the batches; their task is "classes" or "binary".

    Returns:
        int64 [N] each; None if they cannot be compared.
    """
    labels, predictions = batch.compared.labels, batch.compared.predictions
    if not np.isfinite(predictions).all():
        return None
    if seen.task == "classes":
        truth = class_indices(labels, predictions.shape[-1])
        if truth is None or truth.shape != predictions.shape[:-1]:
            return None
        return truth.ravel(), predictions.argmax(-1).ravel()
    limit = 0.0 if seen.identity.takes == "logits" else 0.5
    yes = np.asarray(labels, np.float64).ravel() > 0.5
    return yes.astype(np.int64), (predictions.ravel() > limit).astype(np.int64)


def confusion_chart(data: Confusion) -> Svg:
    """Return the chart: a row per true class, cells shaded by their share of the row."""
    names = [shortened(name, _LONGEST) for name in data.classes]
    cell = min(_WIDEST_CELL, _MOST_WIDTH / len(names))
    left = 30.0 + _CHARACTER * max(map(len, names))
    size = cell * len(names)
    middle = left + size / 2
    drawn = [
        element("rect", x=left, y=_TOP, width=size, height=size, class_="nothing"),
        element("text", "predicted", x=middle, y=12, class_="x"),
        element(
            "text",
            "true",
            x=12,
            y=_TOP + size / 2,
            class_="x",
            transform=f"rotate(-90 12 {_TOP + size / 2:g})",
        ),
    ]
    # Column names are shortened; the tooltips of the cells are complete.
    room = max(int(cell / _CHARACTER), 2)
    for place, name in enumerate(names):
        at = cell * (place + 0.5)
        column = shortened(name, room)
        drawn.append(element("text", column, x=left + at, y=_TOP - 8, class_="tick x"))
        drawn.append(element("text", name, x=left - 8, y=_TOP + at + 3.5, class_="tick y"))
    for row, column_ in zip(*np.nonzero(data.counts), strict=True):
        corner = left + cell * int(column_), _TOP + cell * int(row)
        drawn.append(_cell(data, int(row), int(column_), corner, cell))
    return chart(
        f"Confusion matrix of {len(names)} classes",
        left + size + 12,
        _TOP + size + _BOTTOM,
        *drawn,
        # Not the width of the page: few classes need little space.
        style=f"max-width:{left + size + 12:.0f}px",
        kind="confusion",
    )


def _cell(data: Confusion, row: int, column: int, corner: tuple[float, float], size: float) -> Svg:
    count, total = int(data.counts[row, column]), int(data.total[row])
    share = count / total
    x, y = corner
    pair = f"{data.classes[row]} predicted as {data.classes[column]}"
    title = f"{pair}: {count:,} of {total:,} ({share:.0%})"
    kind = "right" if row == column else "wrong"
    shade = "dark" if share > _DARK else "light"
    text = element("text", f"{count:,}", x=x + size / 2, y=y + size / 2 + 3.5, class_="x")
    opacity = 0.08 + 0.87 * share
    box = element("rect", x=x, y=y, width=size - 1, height=size - 1, fill_opacity=opacity)
    written = [text] if len(f"{count:,}") * _CHARACTER < size else []
    return element("g", element("title", title), box, *written, class_=f"cell {kind} {shade}")
