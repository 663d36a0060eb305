"""Examples with the highest loss, as images or as rows of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.charts.images import colour_png, data_url, mosaic, tile_images
from vinedresser.explain.formatting import number
from vinedresser.explain.reports.last_batches import Batch, LastBatches
from vinedresser.rules.signals.losses.loss_formulas import class_indices, row_losses

__all__ = [
    "Example",
    "HardExamples",
    "RankedRow",
    "class_name",
    "described",
    "example_tiles",
    "hard_examples",
    "ranked_rows",
    "row_inputs",
    "share_of_prediction",
]

_MOST_EXAMPLES = 8
_MOST_FEATURES = 8
_MOST_PIXELS = 48
_FEWEST_PIXELS = 8
_MOST_NUMBERS = 3
_CHANNELS = (1, 3)


class RankedRow(NamedTuple):
    """A row of a batch with its loss.

    Attributes:
        row: number of the row.
    """

    loss: float
    batch: Batch
    row: int


@dataclass(frozen=True)
class Example:
    """One row of a batch.

    Attributes:
        truth: label as text.
        predicted: prediction as text.
        picture: input as a ``data:`` URL; "" if it is not an image.
        features: values of `HardExamples.features`.
        origin: the record that it is, as text; "" if that is not known.
    """

    step: int
    loss: str
    truth: str
    predicted: str
    picture: str
    features: Sequence[str]
    origin: str = ""


@dataclass(frozen=True)
class HardExamples:
    """The examples with the highest loss among some batches.

    Attributes:
        examples: examples by decreasing loss.
        features: names of the features shown, [] for none.
        of: number of all features.
    """

    examples: Sequence[Example]
    features: Sequence[str]
    of: int

    @property
    def origins(self) -> bool:
        """Whether the records that the examples are, are known."""
        return any(example.origin for example in self.examples)

    @property
    def pictures(self) -> bool:
        """Whether the examples have pictures."""
        return any(example.picture for example in self.examples)


def hard_examples(
    seen: LastBatches, classes: Sequence[str], features: Sequence[str], *, channels_last: bool
) -> HardExamples | None:
    """Return the examples with the highest loss; losses that are not finite come first.

    Args:
        features: feature names in the order of the last input axis.
        channels_last: the channels of images are the last axis.

    Returns:
        None if the loss of a row cannot be computed.
    """
    ranked = ranked_rows(seen)
    if not ranked:
        return None
    return described(seen, ranked[:_MOST_EXAMPLES], classes, features, channels_last=channels_last)


def described(
    seen: LastBatches,
    rows: Sequence[RankedRow],
    classes: Sequence[str],
    features: Sequence[str],
    *,
    channels_last: bool,
) -> HardExamples:
    """Return rows with their pictures or features.

    Args:
        rows: the rows, at least one.
        features: feature names in the order of the last input axis.
        channels_last: the channels of images are the last axis.
    """
    values = _inputs(seen, rows)
    tiles = _tiles(values, channels_last=channels_last)
    pictures = [data_url(colour_png(mosaic([[tile]]))) for tile in tiles]
    names, texts = ([], []) if pictures else _features(seen, values, features)
    examples = [
        Example(
            step=batch.step,
            loss=number(loss, 3),
            truth=_truth(seen, batch, row, classes),
            predicted=_predicted(seen, batch, row, classes),
            picture=pictures[place] if pictures else "",
            features=texts[place] if texts else [],
            origin=str(batch.origin(row) or ""),
        )
        for place, (loss, batch, row) in enumerate(rows)
    ]
    width = 0 if values is None else int(values.shape[-1])
    return HardExamples(examples, names, width)


def example_tiles(
    seen: LastBatches, rows: Sequence[RankedRow], *, channels_last: bool
) -> list[NDArray[np.float64]]:
    """Return rows as images, float64 [H, W] or [H, W, 3] from 0 to 1; [] if they are not images.

    Args:
        channels_last: the channels of images are the last axis.
    """
    return _tiles(_inputs(seen, rows), channels_last=channels_last)


def ranked_rows(seen: LastBatches) -> list[RankedRow]:
    """Return the rows of all batches by decreasing loss; those that are not finite come first."""
    found: list[RankedRow] = []
    for batch in seen.batches:
        # Extreme predictions give losses that are not finite, which are shown as such.
        with np.errstate(all="ignore"):
            losses = row_losses(
                seen.identity.formula, batch.compared.labels, batch.compared.predictions
            )
        if losses is not None:
            found += [RankedRow(float(loss), batch, row) for row, loss in enumerate(losses)]
    return sorted(found, key=lambda one: -one.loss if np.isfinite(one.loss) else -np.inf)


def _inputs(seen: LastBatches, rows: Sequence[RankedRow]) -> NDArray[np.float64] | None:
    """Return the model input of these rows, float64 [rows, ...]; None if not captured."""
    found = row_inputs(seen, rows)
    return None if found is None else np.asarray(found, np.float64)


def row_inputs(seen: LastBatches, rows: Sequence[RankedRow]) -> NDArray[Any] | None:
    """Return the model input of some rows.

    Returns:
        [rows, ...] in the dtype of the input; None if it was not captured.
    """
    name = _input_name(seen.batches)
    if name is None:
        return None
    found = []
    for _, batch, row in rows:
        value = batch.inputs.get(name)
        if value is None or len(value) != len(batch.compared.labels):
            return None
        found.append(value[row])
    same = len({one.shape for one in found}) == 1
    return np.stack(found) if same else None


def _input_name(batches: Sequence[Batch]) -> str | None:
    """Return the input to show: the first numeric one with numbers in a row per label."""
    rows = len(batches[-1].compared.labels)
    for name, value in batches[-1].inputs.items():
        numeric = value.dtype.kind in "fiub" or value.dtype.kind == "V"
        if numeric and value.ndim > 1 and len(value) == rows and value.size:
            return name
    return None


def _tiles(values: NDArray[np.float64] | None, *, channels_last: bool) -> list[NDArray[np.float64]]:
    """Return an image per row of float64 [rows, ...]; [] if these are not images."""
    if values is None or values.ndim not in (3, 4):
        return []
    last = values.ndim == 4 and values.shape[-1] in _CHANNELS
    first = values.ndim == 4 and values.shape[1] in _CHANNELS
    last = last and (channels_last or not first)
    if values.ndim == 4 and not (first or last):
        return []
    height, width = values.shape[1:3] if last else values.shape[-2:]
    if min(height, width) < _FEWEST_PIXELS:
        return []
    stride = -(-max(height, width) // _MOST_PIXELS)
    fine = (slice(None, None, stride), slice(None, None, stride))
    thin = values[(slice(None), *fine)] if last else values[(..., *fine)]
    rows = tile_images(thin, channels_last=last)
    return [tile for row in rows for tile in row]


def _features(
    seen: LastBatches, values: NDArray[np.float64] | None, names: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return the features in which the examples are most unusual, and their values.

    Args:
        values: inputs of the examples, float64 [rows, features].
        names: names of the features; others are numbered.

    Returns:
        Names, and texts by row; empty if the inputs are not rows of features.
    """
    name = _input_name(seen.batches)
    if values is None or values.ndim != 2 or name is None:
        return [], []
    width = values.shape[1]
    seen_values = [batch.inputs[name] for batch in seen.batches if name in batch.inputs]
    every = np.concatenate(
        [np.asarray(value, np.float64).reshape(-1, width) for value in seen_values]
    )
    with np.errstate(all="ignore"):
        spread = every.std(axis=0)
        distance = np.abs(values - every.mean(axis=0)).mean(axis=0) / np.where(spread, spread, 1)
    # Values that are not finite are the most unusual.
    distance = np.where(np.isfinite(distance), distance, np.inf)
    shown = np.sort(np.argsort(-distance, kind="stable")[:_MOST_FEATURES])
    if len(names) != width:
        names = [str(place) for place in range(width)]
    texts = [[number(float(row[place]), 3) for place in shown] for row in values]
    return [names[place] for place in shown.tolist()], texts


def class_name(place: int, classes: Sequence[str]) -> str:
    """Return the name of a class, or its number if it has none."""
    return classes[place] if place < len(classes) else str(place)


def _listed(values: NDArray[Any]) -> str:
    """Return the first numbers of an array, any shape and real dtype, as text."""
    flat = np.asarray(values, np.float64).ravel()
    more = ", …" if flat.size > _MOST_NUMBERS else ""
    return ", ".join(number(float(value), 3) for value in flat[:_MOST_NUMBERS]) + more


def _truth(seen: LastBatches, batch: Batch, row: int, classes: Sequence[str]) -> str:
    labels = batch.compared.labels
    if seen.task == "classes":
        numbers = class_indices(labels, batch.compared.predictions.shape[-1])
        if numbers is not None and numbers.ndim == 1:
            return class_name(int(numbers[row]), classes)
    elif seen.task == "binary":
        return class_name(int(np.asarray(labels[row], np.float64).item() > 0.5), classes)
    return _listed(labels[row])


def _predicted(seen: LastBatches, batch: Batch, row: int, classes: Sequence[str]) -> str:
    prediction = batch.compared.predictions[row]
    if not np.isfinite(prediction).all():
        return "not finite"
    if seen.task == "classes" and prediction.ndim == 1:
        place = int(prediction.argmax())
        return f"{class_name(place, classes)} ({_share(seen, prediction)[place]:.0%})"
    if seen.task == "binary":
        chance = _chance(seen, prediction)
        return f"{class_name(int(chance > 0.5), classes)} ({max(chance, 1 - chance):.0%})"
    return _listed(prediction)


def share_of_prediction(seen: LastBatches, batch: Batch, row: int) -> float:
    """Return the probability of the predicted class of a row; NaN if there is none."""
    prediction = batch.compared.predictions[row]
    if not np.isfinite(prediction).all():
        return float("nan")
    if seen.task == "classes" and prediction.ndim == 1:
        return float(_share(seen, prediction).max())
    if seen.task == "binary":
        chance = _chance(seen, prediction)
        return max(chance, 1 - chance)
    return float("nan")


def _chance(seen: LastBatches, prediction: NDArray[np.float64]) -> float:
    """Return the probability of the second of two classes, given their only output."""
    value = float(prediction.item())
    if seen.identity.takes != "logits":
        return value
    return float(1 / (1 + np.exp(-np.clip(value, -500, 500))))


def _share(seen: LastBatches, prediction: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities of the classes, float64 [classes]."""
    if seen.identity.takes == "probabilities":
        return prediction
    powers = np.exp(prediction - prediction.max())
    return np.asarray(powers / powers.sum(), np.float64)
