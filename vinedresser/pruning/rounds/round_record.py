"""The record of a finished round of pruning."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from vinedresser.pruning.latency import Share
from vinedresser.pruning.rounds.settings import Target
from vinedresser.store.records import Record


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
        latency: time of a forward pass after it, in seconds. Those of two rounds are of different
            occasions: compare `share_of_latency`.
        original_latency: that of the unpruned model, measured in turns with it.
        before: figure of the evaluation before fine-tuning.
        figure: figure of the evaluation after fine-tuning.
        left: number of channels left in each group.
        criterion: by what filters were chosen; see `vinedresser.pruning.plan.Plan`.
        checks: what was checked of the pruned model; see `vinedresser.pruning.proof.Proof`.
        latency_low: lower bound of the 95 % interval of their ratio; None if it was not measured.
        latency_high: upper bound.
        notes: what of the model was not seen; see `vinedresser.pruning.Pruned`.
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
    latency_low: float | None = None
    latency_high: float | None = None
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse values that a damaged file may have."""
        for key in ("number", "removed"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} is {getattr(self, key)}")
        for key in ("parameters", "macs", "size", "latency", "original_latency"):
            # They are divided by each other.
            if not 0 < getattr(self, key) < math.inf:
                raise ValueError(f"{key} is {getattr(self, key)}")
        for bound in (self.latency_low, self.latency_high):
            if bound is not None and not 0 < bound < math.inf:
                raise ValueError(f"a bound of the latency is {bound}")
        if not all(isinstance(note, str) for note in self.notes):
            raise TypeError("notes has something else than text")
        counts = [*self.left.values(), *self.checks.values()]
        if not all(isinstance(count, int | float) for count in counts):
            raise TypeError("left or checks has a value that is not a number")

    @property
    def share_of_latency(self) -> Share:
        """The latency as a share of the unpruned model's, measured in turns with it."""
        if self.number == 0:
            return Share(1.0)
        return Share(self.latency / self.original_latency, self.latency_low, self.latency_high)

    @property
    def costs(self) -> dict[Target, float]:
        """What the model costs, for comparison with targets; its latency as a share."""
        return {
            "parameters": self.parameters,
            "macs": self.macs,
            "latency": self.share_of_latency.value,
            "size": self.size,
        }
