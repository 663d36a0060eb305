"""The record of a finished round of pruning."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from vinedresser.pruning.rounds.settings import Target
from vinedresser.store.records import Record

__all__ = ["RoundRecord"]


@dataclass(frozen=True)
class RoundRecord(Record):
    """A complete round, beside its models.

    Attributes:
        number: number of the round; 0 is the unpruned model.
        run: name of the run that ended it.
        removed: number of filters that it removed.
        parameters: number of parameters after it.
        macs: multiply-accumulate operations after it, for one example.
        size: bytes of parameters and buffers after it.
        latency: median time of a forward pass after it, in seconds.
        original_latency: that of the unpruned model, measured in turns with it.
        before: figure of the evaluation before fine-tuning.
        figure: figure of the evaluation after fine-tuning.
        left: number of channels left in each group.
        criterion: name of the criterion.
        checks: what was checked of the pruned model; see `vinedresser.pruning.proof.Proof`.
    """

    KEY: ClassVar[str] = "round.json"

    number: int
    run: str
    removed: int
    parameters: int
    macs: int
    size: int
    latency: float
    original_latency: float
    before: float
    figure: float
    left: dict[str, int] = field(default_factory=dict)
    criterion: str = ""
    checks: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that a damaged file may have."""
        for key in ("number", "removed"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} is {getattr(self, key)}")
        for key in ("parameters", "macs", "size", "latency", "original_latency"):
            # They are divided by each other.
            if not 0 < getattr(self, key) < math.inf:
                raise ValueError(f"{key} is {getattr(self, key)}")
        counts = [*self.left.values(), *self.checks.values()]
        if not all(isinstance(one, int | float) for one in counts):
            raise TypeError("left or checks has a value that is not a number")

    def costs(self, original: RoundRecord) -> dict[Target, float]:
        """Return what the model costs, for comparison with targets.

        Args:
            original: record of round 0, whose latency is the unit of the measured ratio.
        """
        ratio = self.latency / self.original_latency
        return {
            "parameters": self.parameters,
            "macs": self.macs,
            "latency": ratio * original.latency,
            "size": self.size,
        }
