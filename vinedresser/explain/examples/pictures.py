"""Examples with their maps: the cells of a confusion matrix, and contact sheets."""

from __future__ import annotations

import numpy as np

from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.examples.cells import Cell
from vinedresser.explain.examples.explained import Explained
from vinedresser.explain.saliency import SheetRow, Tile, sheet, tiles

__all__ = ["cell_sheet", "contact_rows"]

# Pictures in a row, with room for their text; a multiple of two, and of three.
_PER_ROW = 6
_MOST_EXAMPLES, _MOST_IN_CELL = 15, 6


def cell_sheet(one: Explained, group: Cell, *, of: str = "for the prediction") -> Svg:
    """Return the images of a group with their maps.

    Args:
        one: the examples.
        group: some of them.
        of: what the maps are for, as text.

    Raises:
        SaliencyError: the examples are not images.
    """
    pairs = _pairs(one)
    pictures: list[Tile] = []
    for place in group.places[:_MOST_IN_CELL]:
        image, drawn = pairs[place]
        confidence = one.confidence[place]
        sure = "" if np.isnan(confidence) else f", {confidence:.0%}"
        pictures += [
            Tile(image.pixels, (f"{one.classes[place]}{sure}",)),
            Tile(drawn.pixels, (of, *drawn.lines)),
        ]
        if place in one.for_true:
            given, last = one.inputs[place : place + 1], one.channels_last
            [(_, for_true)] = tiles(given, one.for_true[place], channels_last=last)
            pictures.append(Tile(for_true.pixels, ("for the true class", *for_true.lines)))
    return sheet(group.title, _rows("", pictures))


def contact_rows(caption: str, one: Explained) -> list[SheetRow]:
    """Return rows of images and maps.

    Args:
        caption: line above the first row.
        one: the examples.

    Raises:
        SaliencyError: the examples are not images.
    """
    pairs = _pairs(one)[:_MOST_EXAMPLES]
    return _rows(caption, [tile for pair in pairs for tile in pair])


def _rows(caption: str, pictures: list[Tile]) -> list[SheetRow]:
    return [
        SheetRow(caption if start == 0 else "", pictures[start : start + _PER_ROW])
        for start in range(0, len(pictures), _PER_ROW)
    ]


def _pairs(one: Explained) -> list[tuple[Tile, Tile]]:
    pairs = tiles(one.inputs, one.result, channels_last=one.channels_last)
    return [
        (Tile(image.pixels, (one.classes[place],)), drawn)
        for place, (image, drawn) in enumerate(pairs)
    ]
