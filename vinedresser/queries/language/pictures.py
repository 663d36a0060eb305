"""Functions whose results are drawn: images, samples with their predictions, points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import QueryError
from vinedresser.queries.language.classes import class_numbers, single
from vinedresser.queries.language.context import Context
from vinedresser.queries.language.values import Array, Examples, Image, Pending, Points, Tensors

__all__ = ["MOST_EXAMPLES", "MOST_POINTS", "examples", "images", "scatter"]

MOST_EXAMPLES = 64
MOST_POINTS = 1_000
_USUAL_EXAMPLES = 16
# Bytes of pixels in a result, so that an answer stays below its limit.
_MOST_BYTES = 30_000
_MOST_CHANNELS = 3
# Numbers of a sample that is no image.
_MOST_NUMBERS = 12


def images(context: Context, operand: Tensors, count: float = _USUAL_EXAMPLES) -> Pending:
    """Return the first images of a batch side by side, from black (lowest) to white (highest).

    Args:
        context: the event.
        operand: one tensor [samples, height, width], or with 1 or 3 channels as the framework
            orders them.
        count: maximum number of images.
    """
    rows, shape, shown = _first_samples(context, "images", operand, count)
    if len(_picture_shape(shape, channels_last=context.numeric.channels_last)) != _MOST_CHANNELS:
        raise QueryError(f"images: {operand.names[0]} of the shape {list(shape)} has no images")
    last = context.numeric.channels_last

    def finish(values: Sequence[NDArray[np.float64]]) -> Image:
        tiles = _scaled(_tiles(values[0], shape, channels_last=last), shown)
        columns = math.ceil(math.sqrt(len(tiles))) or 1
        lines = math.ceil(len(tiles) / columns)
        height, width, channels = tiles.shape[1:]
        empty = np.zeros((lines * columns - len(tiles), height, width, channels), np.uint8)
        grid = np.concatenate([tiles, empty]).reshape(lines, columns, height, width, channels)
        return Image(grid.swapaxes(1, 2).reshape(lines * height, columns * width, channels))

    return Pending(finish, [rows])


def examples(
    context: Context,
    inputs: Tensors,
    labels: Tensors,
    predictions: Tensors,
    count: float = _USUAL_EXAMPLES,
) -> Pending:
    """Return the first samples of a batch with their labels and predicted classes.

    Args:
        context: the event.
        inputs: one tensor, [samples, ...]; images as in `images`, or numbers.
        labels: class numbers.
        predictions: class numbers, or scores by class.
        count: maximum number of samples.
    """
    rows, shape, shown = _first_samples(context, "examples", inputs, count)
    truth, guess = class_numbers(
        context, single(labels, "labels"), single(predictions, "predictions")
    )
    sizes = {context.numeric.shape(one) for one in (truth, guess)}
    if sizes != {shape[:1]}:
        raise QueryError(f"examples: needs a label and a prediction for each of {shape[0]} samples")
    last = context.numeric.channels_last
    pictured = len(_picture_shape(shape, channels_last=last)) == _MOST_CHANNELS

    def finish(values: Sequence[NDArray[np.float64]]) -> Examples:
        samples, *classes = values
        pairs = [[int(one) for one in each[: len(samples)]] for each in classes]
        if pictured:
            tiles = _scaled(_tiles(samples, shape, channels_last=last), shown)
            return Examples(pairs[0], pairs[1], [Image(tile) for tile in tiles], [])
        return Examples(pairs[0], pairs[1], [], samples[:, :_MOST_NUMBERS].tolist())

    return Pending(finish, [rows, truth[:shown], guess[:shown]])


def scatter(context: Context, left: Tensors, right: Tensors) -> Pending:
    """Return pairs of elements of two tensors, at most 1,000 of them, evenly spaced."""
    if context.by is not None:
        raise QueryError("scatter cannot be grouped")
    rows: list[Array] = []
    for operand, told in ((left, "x"), (right, "y")):
        tensor = single(operand, told).read(operand.names[0])
        context.budget.charge(8 * prod(context.numeric.shape(tensor)))
        rows.append(context.numeric.rows(tensor, None)[0])
    sizes = [prod(context.numeric.shape(row)) for row in rows]
    if sizes[0] != sizes[1]:
        raise QueryError(f"scatter: {sizes[0]:,} and {sizes[1]:,} elements have no pairs")
    step = max(1, math.ceil(sizes[0] / MOST_POINTS))
    return Pending(lambda found: Points(*found), [row[::step] for row in rows])


def _first_samples(
    context: Context, function: str, operand: Tensors, count: float
) -> tuple[Array, tuple[int, ...], int]:
    """Return the first samples of a batch, [shown, elements]; its shape; and their number."""
    if context.by is not None:
        raise QueryError(f"{function} cannot be grouped")
    if count % 1 or not 1 <= count <= MOST_EXAMPLES:
        raise QueryError(f"{function}: the number must be a whole number from 1 to {MOST_EXAMPLES}")
    name = single(operand, function).names[0]
    tensor = operand.read(name)
    shape = context.numeric.shape(tensor)
    if not shape or not prod(shape):
        raise QueryError(f"{function}: {name} of the shape {list(shape)} has no samples")
    shown = min(int(count), shape[0])
    tensor = tensor[:shown]
    context.budget.charge(8 * prod(context.numeric.shape(tensor)))
    return context.numeric.rows(tensor, 0), shape, shown


def _picture_shape(shape: tuple[int, ...], *, channels_last: bool) -> tuple[int, ...]:
    """Return height, width and channels of the images of a batch; () if it has none."""
    sample = shape[1:]
    if len(sample) == 2 and min(sample) > 1:
        return (*sample, 1)
    if len(sample) != 3:
        return ()
    found = sample if channels_last else (*sample[1:], sample[0])
    return found if found[-1] in (1, _MOST_CHANNELS) else ()


def _tiles(
    rows: NDArray[np.float64], shape: tuple[int, ...], *, channels_last: bool
) -> NDArray[np.float64]:
    """Return images, float64 [samples, height, width, channels]."""
    tiles = rows.reshape(len(rows), *shape[1:])
    if tiles.ndim == 3:
        return tiles[..., None]
    return tiles if channels_last else np.moveaxis(tiles, 1, -1)


def _scaled(tiles: NDArray[np.float64], count: int) -> NDArray[np.uint8]:
    """Return images as bytes, small enough for an answer; what is not finite is black."""
    height, width, channels = tiles.shape[1:]
    # Averages over squares of pixels.
    square = 1
    while count * channels * -(-height // square) * -(-width // square) > _MOST_BYTES:
        square += 1
    finite = np.isfinite(tiles)
    low = float(tiles[finite].min()) if finite.any() else 0.0
    extent = (float(tiles[finite].max()) - low if finite.any() else 0.0) or 1.0
    shares = np.where(finite, (tiles - low) / extent, 0.0)
    lines, columns = (np.arange(0, size, square) for size in (height, width))
    sums = np.add.reduceat(np.add.reduceat(shares, lines, axis=1), columns, axis=2)
    area = np.multiply.outer(np.diff([*lines, height]), np.diff([*columns, width]))
    return np.round(255 * sums / area[..., None]).astype(np.uint8)
