"""Rule: tensors are all zero in a run that does not learn."""

from __future__ import annotations

import math

from vinedresser.rules.advice import Advice
from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.bounds import require_share
from vinedresser.rules.faults import Fault
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.rows import whole_rows
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Relative difference of losses that are the same but for rounding.
_SAME = 1e-6
# Minimum steps of a run whose loss is 0, and share of a run in which its weight may be.
_STEPS, _SHARE = 150, 0.5
_LOST = Advice(
    cause="the gradient is lost at the loss: it underflows (half precision without a loss "
    "scaler, or a tiny factor), outputs are clipped or saturated where the loss has no slope, or "
    "the loss has a factor of 0",
    remedy="print the gradient of the loss with respect to the outputs of the model: if it is "
    "zero, look at the loss; otherwise use a torch.amp.GradScaler or bfloat16",
)
_CANCELLED = Advice(
    cause="the loss does not depend on the model: its terms cancel, as those of a model that is "
    "compared with itself, or of a reference, teacher or target network that is the same object",
    remedy="make the reference a copy of its own, copy.deepcopy(model).requires_grad_(False), and "
    "check which terms of the loss have a gradient",
)
_EMPTY = Advice(
    cause="the loss is 0 for every batch, whatever the model does: it leaves all labels out (an "
    "inverted mask, labels that are all ignored), or it has a factor of 0",
    remedy="print how many labels of a batch the loss counts; check the mask, ignore_index and the "
    "weight of the loss",
)
_CUT_OFF = Advice(
    cause="the outputs that the loss receives are exactly 0 for all rows, and their gradient does "
    "not reach the last layer: an activation after it, such as relu, cuts them off",
    remedy="remove the activation after the last layer: the loss needs its raw outputs",
)


class AllZero(SymptomRule):
    """Most gradients are all zero, and the run does not learn.

    Fires when at least ``tensors`` of the gradients (or of another collection) have a share of
    zeros of at least ``zeros`` at ``patience`` consecutive checks, in a training that learns less
    than it should. If every gradient has been zero since the first check, also those of the last
    biases, the fault is `vanishing_gradient`, and the rule warns before the outcome is known, if
    nothing was learned and the loss is not 0. If, besides, a loss without labels has the same value
    for batches that differ, the fault is `untrained_parameters`, and two checks are enough: the
    loss does not depend on the model, since its terms cancel. If all outputs that the loss received
    were 0, an activation after the last layer cuts them off: `loss_output_mismatch`; the same if
    the loss itself has been 0 in 150 steps or more, and half of the run, from the start.

    Args:
        collection: collection of the tensors.
        zeros: share of zeros in a tensor.
        tensors: share of the tensors.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "all_zero"
    stage = "inside"
    consequences = ("outcome",)
    position = 350
    predecessors = ("all_zero",)
    inapplicable = NETWORKS_ONLY
    early_patience = 2

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
        self.batches = Batches()
        # Whether any gradient was not zero so far, and whether the loss is 0 now.
        self._arrived = False
        self._idle = False
        self._step = 0
        # Whether all outputs that losses received so far were 0.
        self._silent = True
        # Bounds of each loss so far; the last inputs until a batch with others; whether there are
        # labels.
        self._bounds: dict[str, tuple[float, float]] = {}
        self._inputs: list[bytes] | None = None
        self._varied = False
        self._labelled = False

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._step = step.step
        for name, value in step.scalars_of("losses").items():
            low, high = self._bounds.get(name, (value, value))
            self._bounds[name] = min(low, value), max(high, value)
        self._labelled |= bool(self.batches.compared)
        self._silent &= not any(one.predictions.any() for one in self.batches.compared)
        if not self._varied and (rows := whole_rows(self.batches.inputs)):
            self._varied = self._inputs is not None and rows != self._inputs
            self._inputs = rows
        return super().watch(step)

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: no gradient arrives anywhere, and nothing is learned."""
        if self._constant():
            return symptom.fault is not None
        if self._idle:
            return self._empty() and self._step >= _SHARE * (self.expected_steps or math.inf)
        return self._patience.exhausted and symptom.fault is not None and outcome.nothing_learned()

    def at_end(self) -> Finding | None:
        """See `OnceRule.at_end`; a loss that was 0 in every step needs no outcome."""
        if self._warning is None and self._patience.exhausted and self._empty():
            return self._finding(self.verdict(ended=True))
        if self._idle and not self._arrived and self._step < _STEPS:
            # The weight of the loss may still be 0, so that nothing was to be learned yet.
            return None
        return super().at_end()

    def _empty(self) -> bool:
        """Return whether all losses of many steps were 0, and no gradient has ever arrived."""
        long = self._step >= _STEPS and not self._arrived
        return long and bool(self._bounds) and not any(any(one) for one in self._bounds.values())

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
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

    def _constant(self) -> bool:
        """Return whether losses without labels, which are not 0, are the same for all batches."""
        return (
            self._varied
            and not self._labelled
            and bool(self._bounds)
            and all(
                low != 0 and high - low <= _SAME * abs(low) for low, high in self._bounds.values()
            )
        )

    def _nowhere(self, zero: list[str]) -> Symptom:
        """Return the symptom of gradients of which none ever arrived."""
        constant = self._constant()
        cut_off = self._silent and self._labelled
        empty = self._empty()
        advice = _EMPTY if empty else _CANCELLED if constant else _CUT_OFF if cut_off else _LOST
        fault: Fault = "loss_output_mismatch" if empty or cut_off else "vanishing_gradient"
        return Symptom(
            tensor=zero[-1],
            statistic="zero_share",
            value=1.0,
            threshold=self.zeros,
            confidence=0.9,
            seen=f"the gradients of all {len(zero)} parameters, also of the last one, have been "
            "exactly zero since the start"
            + (", and the loss is the same for all batches" if constant or empty else ""),
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={"zero": zero},
            fault="untrained_parameters" if constant else fault,
        )
