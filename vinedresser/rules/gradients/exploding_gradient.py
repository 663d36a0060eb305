"""Rule: the gradient grows by orders of magnitude, along the steps or along the depth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.need import Need
from vinedresser.rules.signals.parameters.gradient_profile import gradient_profile
from vinedresser.rules.signals.parameters.learning_rate import LearningRate
from vinedresser.rules.symptom import Symptom, SymptomRule

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["ExplodingGradient"]

# Looks that say what the norm was at the start.
_START = 3
# Rank correlation of gradient size and depth: it has to grow at most layers on its way back.
_STEADY = -0.7


class ExplodingGradient(SymptomRule):
    """The gradient grows by orders of magnitude, and the run does not learn.

    Along the steps: the norm of all gradients, ``sqrt(sum_i |g_i|^2)``, is more than ``growth``
    times the least of the first three looks. Along the depth: the mean absolute gradient of the
    first layers is more than ``depth`` times that of the last ones, and grows steadily on its way
    back. Either at ``patience`` looks in a row, in a training that learns less than it should.

    Args:
        growth: along the steps. Healthy gradients were seen to grow up to 19-fold.
        depth: first layers over last layers; healthy networks of ten layers reach 100.
        every: train steps from one look to the next.
        patience: looks in a row.
    """

    fault = "exploding_gradient"

    def __init__(
        self, growth: float = 100.0, depth: float = 1000.0, every: int = 20, patience: int = 2
    ) -> None:
        if growth <= 1 or depth <= 1:
            raise ConfigError(f"growth = {growth:g}, depth = {depth:g}: must be above 1")
        super().__init__(patience)
        self.growth = growth
        self.depth = depth
        self.every = every
        self.needs = (
            Need("gradients", every=every, reductions=("l2", "abs_mean"), required=False),
        )
        self._start: list[float] = []
        self._rate: LearningRate | None = None

    def begin(self, info: RunRecord) -> None:
        """Take note of the learning rate."""
        self._rate = LearningRate.among(info.parameters)

    def look(self, step: Step) -> Symptom | None:
        """See `SymptomRule.look`."""
        return self._along_the_steps(step) or self._along_the_depth(step)

    def _along_the_steps(self, step: Step) -> Symptom | None:
        norms = step.reduction_of("gradients", "l2")
        norm = math.hypot(*norms.values())
        # Infinite where the square of a finite norm does not fit; NaN is another rule's.
        if math.isnan(norm):
            return None
        if len(self._start) < _START:
            self._start.append(norm)
            return None
        start = min(self._start)
        if not 0 < start < math.inf or norm <= self.growth * start:
            return None
        largest = max(norms, key=norms.__getitem__)
        smaller = self._rate.smaller(norm / start) if self._rate else "a tenth of the learning rate"
        return Symptom(
            tensor=largest,
            statistic="l2",
            value=norm / start,
            threshold=self.growth,
            confidence=1 - self.growth * start / norm / 2,
            seen=f"the norm of the gradient is {norm:.3g}, {norm / start:.3g} times the "
            f"{start:.3g} of the first looks; the largest is that of {largest}",
            cause="steps that are too large: each one makes the next gradient larger",
            remedy=f"clip the norm of the gradient to {start:.2g}; {smaller}; warm the learning "
            "rate up",
            correction=self._rate.lowered(norm / start) if self._rate else {},
            evidence={"start": start, "norm": norm, "l2": dict(norms)},
        )

    def _along_the_depth(self, step: Step) -> Symptom | None:
        profile = gradient_profile(step)
        if profile is None or profile.ratio <= self.depth or profile.steady > _STEADY:
            return None
        return Symptom(
            tensor=profile.shallow,
            statistic="abs_mean",
            value=profile.ratio,
            threshold=self.depth,
            confidence=1 - self.depth / profile.ratio / 2,
            seen=f"{profile.shallow} |g| {profile.sizes[profile.shallow]:.2g}, {profile.deep} "
            f"{profile.sizes[profile.deep]:.2g} (ratio {profile.ratio:.2g})",
            cause=f"each of {len(profile.sizes)} layers multiplies the gradient by about "
            f"{profile.per_layer:.2g} on its way back: the weights are too large",
            remedy=f"weights smaller by {profile.per_layer:.2g} (He or Xavier initialisation), or "
            "normalisation after each layer; clip the norm of the gradient to 1",
            evidence={"abs_mean": profile.sizes, "factor_per_layer": profile.per_layer},
        )
