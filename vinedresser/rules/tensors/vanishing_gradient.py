"""Rule: the gradient vanishes towards the first layers of a run that does not learn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from vinedresser.rules.advice import Advice
from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.bounds import require_at_least, require_between
from vinedresser.rules.need import Need, optional_statistics
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.gradients import GradientProfile, gradient_profile
from vinedresser.rules.signals.parameters.weight_scale import weight_scales
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Rank correlation of gradient size and depth: the gradient must fade steadily, not at one unusual
# layer.
_STEADY = 0.7
# First layers whose weights change by this share per step may still leave a plateau; healthy
# trainings have 2e-4 to 2e-3. Adam moves them this fast as long as their gradient is above its
# epsilon.
_MOVING = 1e-4
# The rule waits this share of the run for them, or this many steps if its length is unknown.
_WAIT_SHARE = 0.4
_WAIT_STEPS = 600
# Below this weight scale even a linear layer attenuates the gradient.
_TINY_SCALE = 0.3
# Ratio at which nothing of the gradient is left, also in a deep network on a plateau.
_NO_GRADIENT = 1e-8


class VanishingGradient(SymptomRule):
    """The gradient vanishes towards the first layers, and the run does not learn.

    The rule computes the mean absolute gradient of each weight tensor, in the order of the forward
    if it is known (PyTorch), otherwise in that of their definition, and divides
    the maximum in the first quarter of the layers by the maximum in the last quarter. Fires when
    this ratio is below ``ratio``, no gradient is exactly zero (dead units are a different fault)
    and the gradient fades steadily with depth (rank correlation of at least 0.7), at ``patience``
    consecutive checks, in a training that learns less than it should.

    If the optimizer still moves the first layers (each step changes them by 1e-4 of their norm, as
    Adam does with any gradient above its epsilon), the network may be on a plateau that it leaves
    by itself. The rule then waits for 0.4 of the run, or for 600 steps if its length is unknown.

    Args:
        ratio: ratio of first to last layers below which the rule fires; healthy networks of ten
            layers lie between 0.01 and 100.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "vanishing_gradient"
    stage = "inside"
    # Without a gradient, weight decay pulls the weights to zero.
    consequences = ("outcome", "no_signal", "learning_rate_too_low", "over_regularisation")
    position = 310
    predecessors = ("vanishing_gradient",)
    inapplicable = NETWORKS_ONLY

    def __init__(self, ratio: float = 1e-4, every: int = 20, patience: int = 8) -> None:
        require_between(0, 1, ratio=ratio)
        require_at_least(1, every=every, patience=patience)
        super().__init__(patience)
        self.ratio = ratio
        self.every = every
        self.needs = (
            Need("gradients", every=every, reductions=("abs_mean",)),
            *optional_statistics(every, weights=("std", "l2", "mean"), updates=("l2",)),
        )
        self._order: Sequence[str] = ()

    def on_record(self, info: RunRecord) -> None:
        """Read the order of the layers, which the first backward pass tells."""
        self._order = info.order

    def is_conclusive(self, step: Step) -> bool:
        """See `SymptomRule.is_conclusive`."""
        wait = _WAIT_STEPS if self.expected_steps is None else _WAIT_SHARE * self.expected_steps
        return step.step >= wait or not _moving(step)

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: so small a gradient does not come back."""
        return symptom.value < _NO_GRADIENT and outcome.nothing_learned()

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        profile = gradient_profile(step, self._order)
        if profile is None or profile.ratio >= self.ratio or profile.steady < _STEADY:
            return None
        advice = _advice(step, profile)
        shallow, deep = profile.sizes[profile.shallow], profile.sizes[profile.deep]
        return Symptom(
            tensor=profile.shallow,
            statistic="abs_mean",
            value=profile.ratio,
            threshold=self.ratio,
            confidence=1 - profile.ratio / self.ratio / 2,
            seen=(
                f"gradients of {_layer(profile.shallow)} are {1 / profile.ratio:.1e} times smaller "
                f"than those of {_layer(profile.deep)} ({shallow:.0e} against {deep:.0e})"
            ),
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={
                "abs_mean": profile.sizes,
                "factor_per_layer": profile.per_layer,
                "rank_correlation": profile.steady,
            },
        )


def _moving(step: Step) -> bool:
    """Return whether the optimizer moves the first quarter of the layers; True if unknown.

    Args:
        step: step with the norms of weights and updates.
    """
    weights = step.reduction_of("weights", "l2")
    updates = step.reduction_of("updates", "l2")
    names = [name.partition("/")[2] for name in weights]
    first = [name for name in names if f"updates/{name}" in updates][: max(1, len(names) // 4)]
    if not first:
        return True
    return any(updates[f"updates/{name}"] >= _MOVING * weights[f"weights/{name}"] for name in first)


def _layer(name: str) -> str:
    """Return the name of a gradient without its collection."""
    return name.partition("/")[2]


def _advice(step: Step, profile: GradientProfile) -> Advice:
    """Return the likely cause and the remedy, depending on the size of the weights.

    Args:
        step: step at which weights may have been captured along with gradients.
        profile: sizes of the gradient by layer.
    """
    layers = len(profile.sizes)
    passed = f"each of {layers} layers passes about 1/{1 / profile.per_layer:.2g} of the gradient"
    scales = [
        weight_scale.scale
        for weight_scale in weight_scales(step).values()
        if weight_scale.scale > 0
    ]
    scale = statistics.median_high(scales) if scales else None
    if scale is not None and scale < _TINY_SCALE:
        return Advice(
            cause=f"the weights are too small: {passed}, and their scale (standard deviation "
            f"times square root of the width) is {scale:.2g} while about 1 preserves the gradient",
            remedy="use He or Xavier initialisation, or add batch or layer normalisation after "
            "each layer",
        )
    return Advice(
        cause=f"activations saturate in a deep network: {passed} (a sigmoid passes at most 1/4)",
        remedy="use relu, add batch or layer normalisation after each layer, or add skip "
        "connections",
    )
