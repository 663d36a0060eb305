"""Rule: no signal passes in a run that does not learn."""

from __future__ import annotations

import math
from collections.abc import Mapping

from vinedresser.rules.advice import Advice
from vinedresser.rules.applicability import NO_NETWORK, Reasons
from vinedresser.rules.bounds import require_above, require_between, require_share
from vinedresser.rules.faults import Fault
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.update_ratios import USUAL_CHANGE, UpdateRatios
from vinedresser.rules.signals.rows import whole_rows
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

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


class NoSignal(SymptomRule):
    """Gradients are all zero, weights do not change or outputs do not vary, and nothing is learned.

    Fires when one of these holds at ``patience`` consecutive checks, in a training that learns less
    than it should:

    - at least ``tensors`` of the gradients are all zero. If every gradient has been zero since the
      first check, also those of the last biases, the fault is `vanishing_gradient`, and the rule
      warns before the outcome is known, if nothing was learned and the loss is not 0. If, besides,
      a loss without labels has the same value for batches that differ, the fault is
      `untrained_parameters`, and two checks are enough: the loss does not depend on the model,
      since its terms cancel. If all outputs that the loss received were 0, an activation after the
      last layer cuts them off: `loss_output_mismatch`; the same if the loss itself has been 0 in
      150 steps or more, and half of the run, from the start;
    - a weight that is neither frozen nor missing from the optimizer has the same norm, mean and
      standard deviation as at the check before, or the updates of all weights, once usual, are
      below ``small`` of their norms (`UpdateRatios`): then the gradient has vanished;
    - at least ``tensors`` of the activations hardly vary: std / sqrt(mean² + std²) over all
      elements of an output is below ``flat``. All-zero outputs do not count.

    Args:
        tensors: share of the tensors.
        flat: minimum share of an output's size that varies; float32 resolves 1e-7.
        small: minimum of the largest ratio of updates to weights; healthy trainings have 2e-4 to
            2e-3.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "no_signal"
    stage = "inside"
    consequences = ("outcome",)
    position = 350
    predecessors = ("all_zero", "tensor_variance", "unchanged_tensor")
    former_names = ("low_variance",)
    inapplicable = Reasons(xgboost=NO_NETWORK)
    early_patience = 2

    def __init__(
        self,
        tensors: float = 0.5,
        flat: float = 1e-3,
        small: float = 2e-5,
        every: int = 20,
        patience: int = 3,
    ) -> None:
        require_share(tensors=tensors)
        require_between(0, 1, flat=flat)
        require_above(0, small=small)
        super().__init__(patience)
        self.tensors = tensors
        self.flat = flat
        self.small = small
        self.every = every
        self.needs = optional_statistics(
            every,
            gradients=("zero_share",),
            weights=("l2", "std", "mean"),
            activations=("mean", "std"),
        )
        self.updates = UpdateRatios(every)
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
        self._untrained: frozenset[str] = frozenset()
        # Norm, standard deviation and mean of each weight at the last check, and number of checks
        # since they have changed.
        self._last: dict[str, tuple[float, ...]] = {}
        self._unchanged: dict[str, int] = {}

    def on_record(self, info: RunRecord) -> None:
        """Read the names of weights that are not trained."""
        self._untrained = frozenset((*info.frozen, *info.unoptimized))

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
        if symptom.fault is None:
            return False
        if self._constant():
            return True
        if self._idle:
            return self._empty() and self._step >= _SHARE * (self.expected_steps or math.inf)
        return self._patience.exhausted and outcome.nothing_learned()

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
        return (
            long and bool(self._bounds) and not any(any(bound) for bound in self._bounds.values())
        )

    def is_checked(self, step: Step) -> bool:
        """See `SymptomRule.is_checked`: whatever of the needs was captured."""
        return any(need.due(step) and need.met(step) for need in self.needs)

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        self._idle = not any(step.scalars_of("losses").values())
        self._note_weights(step)
        return (
            self._zero(step.reduction_of("gradients", "zero_share"))
            or self._standing()
            or self._vanished(step)
            or self._hardly_varying(step)
        )

    def may_recover(self, symptom: Symptom) -> bool:
        """See `SymptomRule.may_recover`: on a plateau, gradients are small, but not zero."""
        return "ratios" in symptom.evidence

    def _note_weights(self, step: Step) -> None:
        norms, stds, means = (step.reduction_of("weights", word) for word in ("l2", "std", "mean"))
        for name, norm in norms.items():
            if name not in self._untrained:
                now = (norm, stds[name], means[name])
                same = self._last.get(name) == now
                self._unchanged[name] = self._unchanged.get(name, 0) + 1 if same else 0
                self._last[name] = now

    def _zero(self, shares: Mapping[str, float]) -> Symptom | None:
        """Return the symptom of gradients that are all zero."""
        zero = [name for name, share in shares.items() if share >= 1]
        self._arrived |= len(zero) < len(shares)
        if not zero or len(zero) < self.tensors * len(shares):
            return None
        if not self._arrived:
            return self._nowhere(zero)
        return Symptom(
            tensor=zero[0],
            statistic="zero_share",
            value=1.0,
            threshold=1.0,
            confidence=0.95,
            seen=f"{len(zero)} of {len(shares)} gradients are all zero, first {zero[0]}",
            cause="no signal passes: dead relu units, zero weights, a detached graph, or a loss "
            "that does not depend on these tensors",
            remedy="find the last layer with a varying output and check the layers after it",
            evidence={"zero": zero},
        )

    def _standing(self) -> Symptom | None:
        """Return the symptom of weights that do not change."""
        still = [name for name, count in self._unchanged.items() if count]
        if not still:
            return None
        longest = max(still, key=self._unchanged.__getitem__)
        return Symptom(
            tensor=longest,
            statistic="l2",
            value=self._last[longest][0],
            threshold=0.0,
            confidence=0.9,
            seen=f"{len(still)} of {len(self._unchanged)} weights have not changed, {longest} for "
            f"{self._unchanged[longest]} checks",
            cause="no gradient arrives, the optimizer takes no step, or steps are too small for "
            "the precision of the weights",
            remedy=f"check the gradient of {longest.partition('/')[2]}: if it is zero, find out "
            "what cuts it off; otherwise raise the learning rate or keep the weights in float32",
            evidence={"unchanged": still},
        )

    def _vanished(self, step: Step) -> Symptom | None:
        """Return the symptom of weights that hardly move any more."""
        ratios = self.updates.ratios
        largest = max(ratios, key=ratios.__getitem__, default="")
        if not (largest and self.updates.were_usual and ratios[largest] < self.small):
            return None
        value = ratios[largest]
        return Symptom(
            tensor=largest,
            statistic="l2",
            value=value,
            threshold=self.small,
            confidence=1 - value / self.small / 10,
            seen=f"step {step.step} changed the weights by {value:.1e}× their size (maximum "
            f"of {len(ratios)} tensors); {USUAL_CHANGE}",
            cause="the gradient has vanished: earlier steps were larger",
            remedy="look for the reason: a step that was too large, dead or saturated units, a "
            "schedule that has ended",
            evidence={"ratios": ratios},
        )

    def _hardly_varying(self, step: Step) -> Symptom | None:
        """Return the symptom of activations that hardly vary."""
        means = step.reduction_of("activations", "mean")
        stds = step.reduction_of("activations", "std")
        shares = {
            name: std / size
            for name, std in stds.items()
            if name in means and 0 < (size := math.hypot(means[name], std)) < math.inf
        }
        flat = [name for name, share in shares.items() if share < self.flat]
        if not flat or len(flat) < self.tensors * len(shares):
            return None
        least = min(flat, key=shares.__getitem__)
        return Symptom(
            tensor=least,
            statistic="std",
            value=shares[least],
            threshold=self.flat,
            confidence=0.9,
            seen=f"{len(flat)} of {len(shares)} activations hardly vary: {least} by "
            f"{shares[least]:.1e} of its magnitude",
            cause="the inputs have no effect: small weights with large biases, saturation, or "
            "nearly equal inputs",
            remedy="normalise the inputs; use He or Xavier initialisation; add batch or layer "
            "normalisation between the layers",
            evidence={"shares": shares},
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
            threshold=1.0,
            confidence=0.9,
            seen=f"the gradients of all {len(zero)} parameters, also of the last one, have been "
            "exactly zero since the start"
            + (", and the loss is the same for all batches" if constant or empty else ""),
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={"zero": zero},
            fault="untrained_parameters" if constant else fault,
        )
