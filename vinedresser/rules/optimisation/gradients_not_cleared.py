"""Rule: gradients accumulate over steps because they are not cleared."""

from __future__ import annotations

import math

from vinedresser.rules.applicability import NO_NETWORK, Reasons
from vinedresser.rules.bounds import require_above
from vinedresser.rules.need import Need
from vinedresser.rules.signals.parameters.gradients import GradientGrowth
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

_LIKELY, _SURE = 0.8, 0.99
_CAUSE = "gradients accumulate over steps instead of being cleared"
_REMEDY = "call optimizer.zero_grad() before each backward pass"
# The scalar of a model with a name is `state/NAME.uncleared`.
_UNCLEARED = "uncleared"
# Such gradients soon end in overflow: more checks at the start.
_STATE = (
    Need("state", every=5, stop=20, required=False),
    Need("state", every=20, required=False),
)
# Checks at which gradients were kept; there are none to keep before the first step.
_ENOUGH = 2


class GradientsNotCleared(SymptomRule):
    """Gradients accumulate over steps because they are not cleared.

    Fires if the gradients of a step were added to those of the step before at two consecutive
    checks (``state/uncleared``, PyTorch), as a warning unless the training learns less than it
    should. Where that is not captured, let n be the l2 norm of the whole gradient and x the loss at
    a check: fires when n / n_first > ``growth`` * max(1, x / x_first) at ``patience`` consecutive
    checks, in a training that learns less than it should. A running sum grows by itself; if too
    large a step makes the training diverge, the loss grows with the gradient. Source: A. Karpathy's
    list of common mistakes; in an example, the norm grew 23-fold without zero_grad and fell to 0.6
    with it.

    Args:
        growth: growth of the norm beyond that of the loss. Half of the observed 23; healthy deep
            networks reach 19, but have a good outcome.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "gradients_not_cleared"
    consequences = ("outcome", "inside", "learning_rate_too_high")
    position = 200
    inapplicable = Reasons(
        keras="Keras and its tapes hand over the gradient of one step",
        xgboost=NO_NETWORK,
        sklearn=NO_NETWORK,
    )

    def __init__(self, growth: float = 10.0, every: int = 20, patience: int = 5) -> None:
        require_above(1, growth=growth)
        super().__init__(patience)
        self.growth = growth
        self.every = every
        self.gradients = GradientGrowth(every)
        self.needs = (*self.gradients.needs, *_STATE)
        self._losses: dict[str, float] = {}
        # By scalar: the first of the consecutive checks at which gradients were kept, and their
        # number.
        self._kept: dict[str, tuple[int, int]] = {}

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        for name, kept in step.scalars_of("state").items():
            if name.rpartition(".")[2].rpartition("/")[2] != _UNCLEARED:
                continue
            found = self._check_kept(step, name, kept=kept == 1)
            if found is not None:
                return found
        return None if self._kept else super().watch(step)

    def at_end(self) -> Finding | None:
        """See `SymptomRule.at_end`."""
        return None if self._kept else super().at_end()

    def suspicion(self) -> Finding | None:
        """See `Rule.suspicion`."""
        return None if self._kept else super().suspicion()

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        rise = 1.0
        for name, loss in step.scalars_of("losses").items():
            first = abs(self._losses.setdefault(name, loss))
            rise = max(rise, abs(loss) / first) if first else math.inf
        growth = self.gradients.growth
        if not growth > self.growth * rise:
            return None
        return Symptom(
            tensor="gradients",
            statistic="l2",
            value=growth,
            threshold=self.growth * rise,
            confidence=_LIKELY,
            seen=f"the gradient norm is {growth:.3g} times its initial value "
            f"({self.gradients.first:.3g}), and the loss {rise:.2g} times",
            cause=_CAUSE,
            remedy=_REMEDY,
            evidence={"growth": growth, "loss_rise": rise},
        )

    def _check_kept(self, step: Step, name: str, *, kept: bool) -> Finding | None:
        """Count a look at whether gradients were kept; return the finding once it is sure."""
        since, checks = self._kept.get(name, (0, 0))
        if not kept:
            self._kept[name] = (0, 0)
            return None
        self._kept[name] = since, checks = (since if checks else step.step, checks + 1)
        if checks < _ENOUGH:
            return None
        verdict = self.outcome.verdict()
        poor = verdict.reason if verdict.kind == "poor" else ""
        seen = f"the gradients of step {step.step} were added to those of the step before"
        return self.found(
            step,
            since=since,
            tensor=name,
            statistic="value",
            value=1.0,
            threshold=0.0,
            confidence=_SURE,
            seen=f"{seen}; {poor}" if poor else seen,
            cause=_CAUSE,
            remedy=_REMEDY,
            severity=None if poor else self.without_stop,
            evidence={"looks": checks},
        )
