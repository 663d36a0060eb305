"""Running a recorded step in a wider precision, to see whether precision is its fault."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vinedresser.replay.restoring import restore
from vinedresser.replay.results import Outcome
from vinedresser.replay.stepping import Replayed
from vinedresser.replay.what_if.precision import cast_batch, in_precision

__all__ = ["WIDER", "Wider", "run_wider"]

WIDER = {"float32": torch.float32, "float64": torch.float64}
"""The dtypes in which a step can run: float32 replaces half precision, float64 also float32."""


@dataclass(frozen=True)
class Wider:
    """A step in a wider precision.

    Attributes:
        dtype: the precision, such as "float64".
        outcome: what the step computed in it.
        broken: whether it is broken in its own precision.
    """

    dtype: str
    outcome: Outcome
    broken: bool

    @property
    def words(self) -> str:
        """What follows from it."""
        if not self.broken:
            still = f"{len(self.outcome.nonfinite)} gradients are not finite"
            return still if self.outcome.broken else "all gradients are finite, as before"
        if self.outcome.broken:
            return "not finite, either: precision is not the cause"
        return "all gradients are finite: precision is the cause"


def run_wider(replayed: Replayed, dtype: str) -> Wider:
    """Run a step in a wider precision, from its recorded state.

    Args:
        dtype: one of `WIDER`.

    Raises:
        ConfigError: the factory builds something else, or the step computes no gradient.
    """
    again, wide = replayed.replay, WIDER[dtype]
    restore(again.parts, again.step, again.whose)
    models, optimizers = again.parts.models.values(), again.parts.optimizers
    with in_precision(wide, models, optimizers):
        losses = again.take([cast_batch(batch, wide) for batch in again.step.batches])
        outcome = again.outcome(losses)
    return Wider(dtype, outcome, replayed.outcome.broken)
