"""Captured examples with their maps, and as text."""

from __future__ import annotations

from vinedresser.explain.saliency.captured.reading import CapturedSaliency
from vinedresser.explain.saliency.sheets import Tile, tiles
from vinedresser.store.reading.reader import Run

__all__ = ["captured_tiles", "class_of"]


def class_of(run: Run, one: CapturedSaliency, place: int) -> str:
    """Return the predicted class of an example, and the true one if it differs; "" if unknown."""
    if one.predicted is None:
        return ""
    guess = _named(run, int(one.predicted[place]))
    truth = guess if one.true is None else _named(run, int(one.true[place]))
    return guess if truth == guess else f"{truth}, predicted {guess}"


def captured_tiles(run: Run, one: CapturedSaliency) -> list[tuple[Tile, Tile]]:
    """Return each example, and its map laid over it.

    Raises:
        SaliencyError: the examples are not images.
    """
    pairs = tiles(one.inputs, one.result)
    return [
        (image._replace(lines=tuple(filter(None, [class_of(run, one, place)]))), drawn)
        for place, (image, drawn) in enumerate(pairs)
    ]


def _named(run: Run, number: int) -> str:
    names = run.info.classes
    return names[number] if number < len(names) else str(number)
