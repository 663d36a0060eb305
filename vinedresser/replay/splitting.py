"""Running a recorded step in parts of its batches, for a device with less memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vinedresser.errors import ConfigError
from vinedresser.replay.batch import batch_size, selected
from vinedresser.replay.recorded import RecordedStep
from vinedresser.replay.restoring import restore
from vinedresser.replay.running import Replay
from vinedresser.replay.samples import with_samples
from vinedresser.replay.stepping import inexact

__all__ = ["Part", "PartOutcome", "Split", "parts_of", "recorded_losses", "run_split"]

PartOutcome = tuple[float, list[str]]
"""Loss of a part, NaN if unknown, and paths of its gradients that are not finite."""

# Relative difference of a loss that is computed in parts, in float32.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Part:
    """A part of a batch.

    Attributes:
        batch: number of the batch.
        first: row of its first sample.
        last: row of its last sample.
        loss: its loss; NaN if the step returns none.
        nonfinite: paths of its gradients that are not finite.
    """

    batch: int
    first: int
    last: int
    loss: float
    nonfinite: list[str]

    @property
    def size(self) -> int:
        """Number of its samples."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Split:
    """A step that was run in parts.

    Attributes:
        recorded: recorded loss of each batch; None where none is known.
        inexact: why a part computes something else than the whole, in words.
    """

    parts: list[Part]
    recorded: list[float | None]
    inexact: list[str]

    def losses(self, batch: int) -> tuple[float, float]:
        """Return the mean and the sum of the losses of a batch's parts.

        The mean is weighted by the samples, as a mean over them.
        """
        own = [part for part in self.parts if part.batch == batch]
        mean = sum(one.loss * one.size for one in own) / sum(one.size for one in own)
        return mean, sum(one.loss for one in own)

    @property
    def same(self) -> bool | None:
        """Whether all losses are those of the training but for rounding; None if not known.

        The loss of a batch is the mean or the sum of those of its samples.
        """
        found = [self.losses(place) for place in range(len(self.recorded))]
        known = [one for one in self.recorded if one is not None]
        if len(known) < len(found):
            return None
        return any(
            all(_close(pair[place], one) for pair, one in zip(found, known, strict=True))
            for place in (0, 1)
        )


def run_split(again: Replay, number: int) -> Split:
    """Run each batch of a step in parts, one after the other, each from the recorded state.

    Args:
        number: number of parts of a batch; less if it has fewer samples.

    Raises:
        ConfigError: the samples cannot be told apart, or the factory builds something else.
    """

    def run(samples: list[tuple[int, int]]) -> PartOutcome:
        restore(again.parts, again.step, again.whose)
        losses = again.take(with_samples(again.step.batches, samples, selected))
        loss = float(losses[0]) if losses and losses[0].numel() == 1 else math.nan
        found = again.outcome(losses).nonfinite
        return loss, [f"{name}.{path}".lstrip(".") for name, path in found]

    return Split(parts_of(again.step, number, run), recorded_losses(again.step), inexact(again))


def parts_of(
    step: RecordedStep, number: int, run: Callable[[list[tuple[int, int]]], PartOutcome]
) -> list[Part]:
    """Run the parts of each batch.

    Args:
        number: number of parts of a batch; less if it has fewer samples.
        run: runs the step with some samples of one batch, given as number of the batch and row.

    Raises:
        ConfigError: the samples cannot be told apart.
    """
    sizes = [batch_size(batch) for batch in step.batches]
    if not all(sizes):
        raise ConfigError("--split: the samples of the recorded batch cannot be told apart")
    parts = []
    for place, size in enumerate(sizes):
        for part in torch.arange(size).tensor_split(min(number, size)):
            rows = part.tolist()
            loss, nonfinite = run([(place, row) for row in rows])
            parts.append(Part(place, rows[0], rows[-1], loss, nonfinite))
    return parts


def recorded_losses(step: RecordedStep) -> list[float | None]:
    """Return the recorded loss of each batch; None where none is known."""
    return [_recorded(loss) for loss in step.losses]


def _close(loss: float, recorded: float) -> bool:
    if math.isnan(recorded):
        return math.isnan(loss)
    return math.isclose(loss, recorded, rel_tol=_ROUNDING, abs_tol=1e-12)


def _recorded(losses: list[Tensor]) -> float | None:
    known = [float(loss) for loss in losses if loss.numel() == 1]
    return known[-1] if known else None
