"""Rule: the gradient grows by orders of magnitude over steps or over depth."""

from __future__ import annotations

import math

from vinedresser.rules.advice import Advice
from vinedresser.rules.applicability import NETWORKS_ONLY
from vinedresser.rules.bounds import require_above
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.parameters.gradients import gradient_profile, left_out
from vinedresser.rules.signals.parameters.learning_rate import LearningRate
from vinedresser.rules.signals.parameters.rate_jump import Jump, RateJump
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Checks that define the initial norm.
_START = 3
# Rank correlation of gradient size and depth: the gradient must grow at most layers of the backward
# pass.
_STEADY = -0.7


class ExplodingGradient(SymptomRule):
    """The gradient grows by orders of magnitude, and the run does not learn.

    Over steps: the norm of all gradients, ``sqrt(sum_i |g_i|^2)``, is more than ``growth`` times
    the smallest norm of the first three checks. Over depth: the mean absolute gradient of the first
    layers is more than ``depth`` times that of the last layers and grows steadily in the backward
    pass. Fires when either holds at ``patience`` consecutive checks, in a training that learns less
    than it should. Growth over steps that began after a jump of the learning rate (`RateJump`) has
    the fault `learning_rate_too_high`.

    Args:
        growth: growth over steps; healthy gradients grow up to 19-fold.
        depth: ratio of first to last layers; healthy networks of ten layers reach 100.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "exploding_gradient"
    stage = "inside"
    consequences = ("outcome", "dying_relu", "nonfinite", "oscillating_loss")
    position = 300
    inapplicable = NETWORKS_ONLY
    # A training that leaves a plateau has a gradient that grows from almost nothing.
    awaits_plateau = True

    def __init__(
        self, growth: float = 100.0, depth: float = 1000.0, every: int = 20, patience: int = 2
    ) -> None:
        require_above(1, growth=growth, depth=depth)
        super().__init__(patience)
        self.growth = growth
        self.depth = depth
        self.every = every
        self.needs = optional_statistics(every, gradients=("l2", "abs_mean"))
        self.jump = RateJump()
        self._start: list[float] = []
        self._rate: LearningRate | None = None
        self._left_out: frozenset[str] = frozenset()

    def begin(self, info: RunRecord) -> None:
        """Read the learning rate."""
        self._rate = LearningRate.among(info.parameters)

    def on_record(self, info: RunRecord) -> None:
        """Read which parameters no optimizer has."""
        self._left_out = left_out(info)

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        return self._along_the_steps(step) or self._along_the_depth(step)

    def _along_the_steps(self, step: Step) -> Symptom | None:
        norms = {
            name: one
            for name, one in step.reduction_of("gradients", "l2").items()
            if name not in self._left_out
        }
        norm = math.hypot(*norms.values())
        # Infinite if the square of a finite norm overflows; NaN is left to another rule.
        if math.isnan(norm):
            return None
        if len(self._start) < _START:
            self._start.append(norm)
            return None
        start = min(self._start)
        if not 0 < start < math.inf or norm <= self.growth * start:
            return None
        largest = max(norms, key=norms.__getitem__)
        seen = (
            f"the gradient norm is {norm:.3g}, {norm / start:.3g} times the {start:.3g} of the "
            f"first checks; {largest} has the largest gradient"
        )
        smaller = (
            self._rate.smaller(norm / start) if self._rate else "divide the learning rate by 10"
        )
        advice = Advice(
            cause="the steps are too large: each step increases the next gradient",
            remedy=f"clip the gradient norm to {start:.2g}; {smaller}; warm up the learning rate",
        )
        jump = self._jump()
        if jump is not None:
            seen, advice = f"{seen}; {jump}", jump.advice
        return Symptom(
            tensor=largest,
            statistic="l2",
            value=norm / start,
            threshold=self.growth,
            confidence=1 - self.growth * start / norm / 2,
            seen=seen,
            cause=advice.cause,
            remedy=advice.remedy,
            fault=None if jump is None else "learning_rate_too_high",
            correction=self._rate.lowered(norm / start) if self._rate and jump is None else {},
            evidence={"start": start, "norm": norm, "l2": dict(norms)},
        )

    def _jump(self) -> Jump | None:
        """Return the jump of the learning rate after which the gradient has grown, if any."""
        jump = self.jump.jump
        after = jump is not None and (not self._patience.count or self._patience.since > jump.last)
        return jump if after else None

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
            cause=f"the weights are too large: each of {len(profile.sizes)} layers multiplies the "
            f"gradient by about {profile.per_layer:.2g} in the backward pass",
            remedy=f"reduce the weights by a factor of {profile.per_layer:.2g} (He or Xavier "
            "initialisation) or add normalisation after each layer; clip the gradient norm to 1",
            evidence={"abs_mean": profile.sizes, "factor_per_layer": profile.per_layer},
        )
