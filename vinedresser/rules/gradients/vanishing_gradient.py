"""Rule: the gradient fades on its way to the first layers of a run that does not learn."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.advice import Advice
from vinedresser.rules.need import Need
from vinedresser.rules.signals.parameters.gradient_profile import GradientProfile, gradient_profile
from vinedresser.rules.signals.parameters.weight_scale import weight_scales
from vinedresser.rules.symptom import Symptom, SymptomRule

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["VanishingGradient"]

# Rank correlation of gradient size and depth: it has to fade steadily, not at one odd layer.
_STEADY = 0.7
# First layers whose weights move by this share in a step may still find out of a plateau: healthy
# trainings have 2e-4 to 2e-3. Adam moves them so as long as their gradient is above its epsilon.
_MOVING = 1e-4
# They are waited for over this share of the run, or these steps of one of unknown length.
_WAIT_SHARE = 0.4
_WAIT_STEPS = 600
# With weights of this scale even a linear layer weakens the gradient.
_TINY_SCALE = 0.3


class VanishingGradient(SymptomRule):
    """The gradient fades on its way back to the first layers, and the run does not learn.

    Looks at the mean absolute gradient of each weight tensor, in the order of the model: the
    greatest in the first quarter of the layers over the greatest in the last quarter. Fires when
    this lies below ``ratio``, no gradient is exactly zero (that is dead units, another fault) and
    the gradient fades steadily with depth (rank correlation at least 0.7), at ``patience``
    consecutive looks, in a training that learns less than it should.

    Where the optimizer still moves the first layers (a step changes them by 1e-4 of their norm, as
    Adam does with any gradient above its epsilon), the network may be on a plateau that it leaves
    by itself; so it waits for 0.4 of the run, or 600 steps of a run of unknown length.

    Args:
        ratio: first layers over last layers, under which it fires; healthy networks of ten layers
            lie between 0.01 and 100.
        every: train steps from one look to the next.
        patience: consecutive looks.
    """

    fault = "vanishing_gradient"

    def __init__(self, ratio: float = 1e-4, every: int = 20, patience: int = 8) -> None:
        if not 0 < ratio < 1:
            raise ConfigError(f"ratio = {ratio:g}: must lie between 0 and 1")
        if every < 1 or patience < 1:
            raise ConfigError(f"every = {every}, patience = {patience}: must be at least 1")
        super().__init__(patience)
        self.ratio = ratio
        self.every = every
        self.needs = (
            Need("gradients", every=every, reductions=("abs_mean",)),
            Need("weights", every=every, reductions=("std", "l2", "mean"), required=False),
            Need("updates", every=every, reductions=("l2",), required=False),
        )

    def ripe(self, step: Step) -> bool:
        """See `SymptomRule.ripe`."""
        wait = _WAIT_STEPS if self.expected_steps is None else _WAIT_SHARE * self.expected_steps
        return step.step >= wait or not _moving(step)

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        profile = gradient_profile(step)
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
                f"{_layer(profile.shallow)} |g| {shallow:.0e}, {_layer(profile.deep)} {deep:.0e} "
                f"(ratio {profile.ratio:.1e})"
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
    """Say whether the optimizer moves the first quarter of the layers; yes where it is not known.

    Args:
        step: with the norms of weights and updates.
    """
    weights = step.reduction_of("weights", "l2")
    updates = step.reduction_of("updates", "l2")
    names = [name.partition("/")[2] for name in weights]
    first = [name for name in names if f"updates/{name}" in updates][: max(1, len(names) // 4)]
    if not first:
        return True
    return any(updates[f"updates/{name}"] >= _MOVING * weights[f"weights/{name}"] for name in first)


def _layer(name: str) -> str:
    """Return a gradient's name without its kind."""
    return name.partition("/")[2]


def _advice(step: Step, profile: GradientProfile) -> Advice:
    """Return the likely cause and the remedy, from how large the weights are.

    Args:
        step: where weights were captured beside the gradients, or not.
        profile: of the gradient.
    """
    layers = len(profile.sizes)
    passed = (
        f"each of {layers} layers passes on about 1/{1 / profile.per_layer:.2g} of the gradient"
    )
    scales = [one.scale for one in weight_scales(step).values() if one.scale > 0]
    scale = statistics.median_high(scales) if scales else None
    if scale is not None and scale < _TINY_SCALE:
        return Advice(
            cause=f"the weights are too small: {passed}, and their scale (standard deviation times "
            f"root of the width) is {scale:.2g} where about 1 keeps the gradient",
            remedy="He or Xavier initialisation, or batch or layer normalisation after each layer",
        )
    return Advice(
        cause=f"saturating activations in a deep stack: {passed} (a sigmoid passes on at most 1/4)",
        remedy="relu, or batch or layer normalisation after each layer, or skip connections",
    )
