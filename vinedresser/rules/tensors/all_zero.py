"""Rule: tensors are all zero in a run that does not learn."""

from __future__ import annotations

from vinedresser.rules.bounds import require_share
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step


class AllZero(SymptomRule):
    """Most gradients are all zero, and the run does not learn.

    Fires when at least ``tensors`` of the gradients (or of another collection) have a share of
    zeros of at least ``zeros`` at ``patience`` consecutive checks, in a training that learns less
    than it should. If every gradient has been zero since the first check, also those of the last
    biases, the fault is `vanishing_gradient`, and the rule warns before the outcome is known, if
    nothing was learned and the loss is not 0.

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
        # Whether any gradient was not zero so far, and whether the loss is 0 now.
        self._arrived = False
        self._idle = False

    def certain(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.certain`: no gradient has arrived anywhere, and nothing is learned."""
        return symptom.fault is not None and not self._idle and outcome.nothing_learned()

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        shares = step.reduction_of(self.collection, "zero_share")
        zero = [name for name, share in shares.items() if share >= self.zeros]
        self._arrived |= self.collection != "gradients" or any(one < 1 for one in shares.values())
        self._idle = not any(step.scalars_of("losses").values())
        if not zero or len(zero) < self.tensors * len(shares):
            return None
        if not self._arrived:
            return self._nowhere(zero)
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

    def _nowhere(self, zero: list[str]) -> Symptom:
        """Return the symptom of gradients of which none ever arrived."""
        return Symptom(
            tensor=zero[-1],
            statistic="zero_share",
            value=1.0,
            threshold=self.zeros,
            confidence=0.9,
            seen=f"the gradients of all {len(zero)} parameters, also of the last one, have been "
            "exactly zero since the start",
            cause="the gradient is lost at the loss: it underflows (half precision without a loss "
            "scaler, or a tiny factor), outputs are clipped or saturated where the loss has no "
            "slope, or the loss has a factor of 0",
            remedy="print the gradient of the loss with respect to the outputs of the model: if it "
            "is zero, look at the loss; otherwise use a torch.amp.GradScaler or bfloat16",
            evidence={"zero": zero},
            fault="vanishing_gradient",
        )
