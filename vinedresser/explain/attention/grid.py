"""Layer grids: a matrix, or a statistic, of each head of each layer.

Shape legend: H heads, L queries, S keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.attention.cells import MASKED, averaged, cell_indices
from vinedresser.explain.charts.palette import FIRST_LEVEL, LEVELS, NONE, indexed_png
from vinedresser.explain.charts.svg import Svg, chart, element
from vinedresser.explain.formatting import number, shortened

__all__ = ["MOST_CELLS", "matrix_grid", "statistic_grid"]

# Rows and columns of cells of one matrix.
MOST_CELLS = 48
_CHARACTER, _LONGEST_NAME, _TOP = 6.1, 34, 18.0
_WIDEST_MATRIX, _WIDEST_BOX, _TALLEST_BOX = 150.0, 30.0, 20.0


def matrix_grid(names: Sequence[str], matrices: Sequence[NDArray[np.float64]], width: float) -> Svg:
    """Return the attention of one example: a row per layer, a matrix per head.

    Queries run downwards and keys to the right. All matrices are one picture, which has one
    palette.

    Args:
        matrices: weights of each layer, float64 [H, L, S], NaN for masked queries.
        width: pixels, before the page scales it.
    """
    cells = [averaged(matrix, MOST_CELLS) for matrix in matrices]
    size = max(max(cell.shape[1:]) for cell in cells)
    heads = max(map(len, cells))
    gap = max(1, size // 12)
    step = size + gap
    picture = np.full((len(cells) * step - gap, heads * step - gap), NONE, np.uint8)
    for row, layer in enumerate(cells):
        for column, head in enumerate(layer):
            top, left = row * step, column * step
            # Smaller matrices, as of another number of keys, fill the same square.
            enlarged = _stretched(cell_indices(head), size)
            picture[top : top + size, left : left + size] = enlarged
    left = _room(names)
    side = min((width - left) / heads, _WIDEST_MATRIX)
    pixel = side / step
    image = element(
        "image",
        href=indexed_png(picture),
        x=left,
        y=_TOP,
        width=picture.shape[1] * pixel,
        height=picture.shape[0] * pixel,
        preserveAspectRatio="none",
        class_="cells",
    )
    hovers = [
        element(
            "rect",
            element("title", f"{names[row]}, head {head}"),
            x=left + head * side,
            y=_TOP + row * side,
            width=size * pixel,
            height=size * pixel,
            class_="hover",
        )
        for row, layer in enumerate(cells)
        for head in range(len(layer))
    ]
    labels = _labels(names, heads, left, side, side)
    label = f"Attention of {sum(map(len, cells))} heads"
    height = _TOP + side * len(cells)
    return chart(label, width, height, image, *hovers, *labels, kind="heat")


def statistic_grid(
    names: Sequence[str],
    values: Sequence[NDArray[np.float64]],
    title: str,
    width: float,
) -> Svg:
    """Return a statistic: a row per layer, a box per head, coloured from 0 to the largest value.

    Args:
        values: the statistic of each layer, float64 [H], NaN where undefined.
        title: name of the statistic.
        width: pixels, before the page scales it.
    """
    heads = max(map(len, values))
    left = _room(names)
    wide = min((width - left) / heads, _WIDEST_BOX)
    finite = np.concatenate(values)
    top = float(np.nanmax(finite)) if not np.isnan(finite).all() else 0.0
    picture = np.full((len(values), heads), NONE, np.uint8)
    hovers = []
    for row, layer in enumerate(values):
        level = np.nan_to_num(layer) / (top or 1.0)
        colours = FIRST_LEVEL + np.round(level * (LEVELS - 1))
        picture[row, : len(layer)] = np.where(np.isnan(layer), MASKED, colours).astype(np.uint8)
        for head, value in enumerate(layer.tolist()):
            said = f"{names[row]}, head {head}: {title} {number(value)}"
            place = {"x": left + head * wide, "y": _TOP + row * _TALLEST_BOX}
            box = {"width": wide - 1, "height": _TALLEST_BOX - 1}
            hovers.append(element("rect", element("title", said), class_="hover", **place, **box))
    image = element(
        "image",
        href=indexed_png(picture),
        x=left,
        y=_TOP,
        width=heads * wide,
        height=len(values) * _TALLEST_BOX,
        preserveAspectRatio="none",
        class_="cells",
    )
    labels = _labels(names, heads, left, wide, _TALLEST_BOX)
    height = _TOP + _TALLEST_BOX * len(values)
    return chart(f"{title} by head", width, height, image, *hovers, *labels, kind="heat")


def _room(names: Sequence[str]) -> float:
    """Return the pixels left of the cells."""
    return 14.0 + _CHARACTER * min(_LONGEST_NAME, max(map(len, names)))


def _labels(names: Sequence[str], heads: int, left: float, wide: float, tall: float) -> list[Svg]:
    """Return the names of the layers and the numbers of the heads that fit."""
    every = max(1, int(np.ceil(22.0 / wide)))
    return [
        *(
            element(
                "text",
                shortened(name, _LONGEST_NAME),
                x=left - 8,
                y=_TOP + tall * (row + 0.5) + 3.5,
                class_="tick y",
            )
            for row, name in enumerate(names)
        ),
        *(
            element("text", str(head), x=left + wide * (head + 0.45), y=12.0, class_="tick x")
            for head in range(0, heads, every)
        ),
    ]


def _stretched(indices: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return indices repeated to a square, uint8 [size, size]."""
    rows, columns = (np.arange(size) * length // size for length in indices.shape)
    return indices[np.ix_(rows, columns)]
