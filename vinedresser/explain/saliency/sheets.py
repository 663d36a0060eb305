"""Sheets of images with their saliency maps, as SVG, HTML and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import SaliencyError
from vinedresser.explain.charts.images import colour_png, data_url, mosaic
from vinedresser.explain.charts.standalone import WIDTH, Panel, standalone
from vinedresser.explain.charts.svg import Svg, element
from vinedresser.explain.saliency.overlays import overlay, pixels_of
from vinedresser.explain.saliency.result import Saliency

__all__ = ["SheetRow", "Tile", "sheet", "sheet_html", "sheet_png", "tiles"]

_GAP, _LINE = 10.0, 15.0
_LARGEST_TILE = 220.0
_MOST_TILES = 8


class Tile(NamedTuple):
    """A picture with text.

    Attributes:
        pixels: uint8 [H, W, 3].
        lines: text below it.
    """

    pixels: NDArray[np.uint8]
    lines: tuple[str, ...] = ()


class SheetRow(NamedTuple):
    """Pictures side by side.

    Attributes:
        caption: a line above them; "" for none.
        tiles: at least one, of one size.
    """

    caption: str
    tiles: Sequence[Tile]


def tiles(
    images: NDArray[Any],
    result: Saliency,
    *,
    classes: Sequence[str] = (),
    channels_last: bool = False,
) -> list[tuple[Tile, Tile]]:
    """Return each image of an explanation, and its saliency map laid over it.

    The text of the map is its completeness error.

    Args:
        images: [batch, ...] as they were explained; each as for `overlays.pixels_of`.
        classes: names of the model's outputs; others are numbered.
        channels_last: the channels are the last axis.

    Raises:
        SaliencyError: the explanation has no maps, or they do not fit the images.
    """
    if result.map is None or result.map.ndim != 3:
        raise SaliencyError("the explanation has no maps: its inputs are not images")
    if len(images) != len(result.map):
        raise SaliencyError(f"{len(images)} images, but {len(result.map)} saliency maps")
    errors = result.completeness_error
    shown = []
    for place, image in enumerate(images):
        target, error = int(result.targets[place]), float(errors[place])
        name = classes[target] if target < len(classes) else f"output {target}"
        verdict = "complete" if error <= result.tolerance else "incomplete"
        drawn = overlay(image, result.map[place], channels_last=channels_last)
        shown.append(
            (
                Tile(
                    pixels_of(image, channels_last=channels_last),
                    (f"{name}: {result.outputs[place]:.4g}",),
                ),
                Tile(drawn, (f"{verdict}, error {error:.1g}",)),
            )
        )
    return shown


def sheet(title: str, rows: Sequence[SheetRow]) -> Svg:
    """Return a sheet as an SVG document, without references to other files.

    Args:
        rows: at least one, of at most eight tiles each.

    Raises:
        SaliencyError: a row has no tiles, or too many.
    """
    counts = [len(row.tiles) for row in rows]
    if not rows or not all(1 <= count <= _MOST_TILES for count in counts):
        raise SaliencyError(f"a sheet needs rows of one to {_MOST_TILES} tiles")
    width = (WIDTH - 40 + _GAP) / max(counts) - _GAP
    return standalone(title, [], [_panel(row, min(width, _LARGEST_TILE)) for row in rows])


def sheet_html(title: str, rows: Sequence[SheetRow]) -> str:
    """Return a sheet as an HTML page, without references to other files.

    Raises:
        SaliencyError: a row has no tiles, or too many.
    """
    svg = sheet(title, rows)
    return f'<!DOCTYPE html><html><meta charset="utf-8">{svg}</html>\n'


def sheet_png(rows: Sequence[SheetRow]) -> bytes:
    """Return the pictures of a sheet, without text, as a PNG file.

    Args:
        rows: at least one, of tiles that all have one size.
    """
    pictures = [[tile.pixels / 255 for tile in row.tiles] for row in rows]
    return colour_png(mosaic(pictures))


def _panel(row: SheetRow, width: float) -> Panel:
    drawn: list[Svg] = []
    lowest = 0.0
    for place, tile in enumerate(row.tiles):
        x = place * (width + _GAP)
        height = width * tile.pixels.shape[0] / tile.pixels.shape[1]
        url = data_url(colour_png(tile.pixels / 255))
        size = {"width": width, "height": height}
        drawn.append(
            element("image", x=x, y=0.0, href=url, style="image-rendering: pixelated", **size)
        )
        for line, text in enumerate(tile.lines, 1):
            y = height + line * _LINE
            drawn.append(element("text", text, x=x, y=y, class_="caption"))
        lowest = max(lowest, height + len(tile.lines) * _LINE)
    return Panel(row.caption, Svg("".join(drawn)), lowest + 4)
