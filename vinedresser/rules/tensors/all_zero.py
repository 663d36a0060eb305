"""Rule: tensors are all zero in a run that does not learn."""

from __future__ import annotations

from vinedresser.rules.bounds import require_share
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step


class AllZero(SymptomRule):
    """Most gradients are all zero, and the run does not learn.

    Fires when at least ``tensors`` of the gradients (or of another collection) have a share of
    zeros of at least ``zeros`` at ``patience`` consecutive checks, in a training that learns less
    than it should.

    Args:
        collection: collection of the tensors.
        zeros: share of zeros in a tensor.
        tensors: share of the tensors.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "all_zero"

    def __init__(
        self,
        collection: str = "gradients",
        zeros: float = 1.0,
        tensors: float = 0.5,
        every: int = 20,
        patience: int = 3,
    ) -> None:
        require_share(zeros=zeros, tensors=tensors)
        super().__init__(patience)
        self.collection = collection
        self.zeros = zeros
        self.tensors = tensors
        self.every = every
        self.needs = optional_statistics(every, **{collection: ("zero_share",)})

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        shares = step.reduction_of(self.collection, "zero_share")
        zero = [name for name, share in shares.items() if share >= self.zeros]
        if not zero or len(zero) < self.tensors * len(shares):
            return None
        return Symptom(
            tensor=zero[0],
            statistic="zero_share",
            value=shares[zero[0]],
            threshold=self.zeros,
            confidence=0.95,
            seen=f"{len(zero)} of {len(shares)} {self.collection} are all zero, first {zero[0]}",
            cause="no signal passes: dead relu units, zero weights, a detached graph, or a loss "
            "that does not depend on these tensors",
            remedy="find the last layer with a varying output and check the layers after it",
            evidence={"zero": zero},
        )
