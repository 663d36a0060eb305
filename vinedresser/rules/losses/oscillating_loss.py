"""Rule: the loss oscillates without progress."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from itertools import pairwise

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.bounds import require_above
from vinedresser.rules.need import Need
from vinedresser.rules.signals.bounded import bounded
from vinedresser.rules.signals.losses.aimless_losses import AimlessLosses
from vinedresser.rules.signals.losses.loss_progress import spread
from vinedresser.rules.signals.losses.moving_targets import MovingTargets
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.reading.step import Step

# Steps per block, and number of checked blocks.
_BLOCK = 5
_BLOCKS = 20
# Share of direction changes among successive differences: noise gives 2/3, a trend none.
_TURNS = 0.5
# Standard errors of a significant decrease.
_SURE = 2.0
# Level, relative to the start, above which the rule fires without a verdict.
_THROWN_UP = 2.0
_CONFIDENCE = 0.8
# Share of its maximum below which a learning rate moves nothing any more.
_ENDED = 1e-3


class OscillatingLoss(SymptomRule):
    """The loss oscillates widely around a constant level.

    Over the last 100 losses, in 20 blocks of 5: the noise of the block means (from successive
    differences) is more than ``swing`` of their mean, they change direction at more than half of
    the blocks, and their second half is not significantly below the first (two standard errors).
    Fires in a training with a poor outcome (`Outcome`), or if the loss oscillates at twice its
    start and not because its targets grow (`MovingTargets`); such a loss has diverged, and the
    fault is ``learning_rate_too_high``. A converged training also oscillates, relative to a loss
    near zero, but its outcome is good. Once the learning rate has fallen below a thousandth of its
    maximum, a loss varies with its batches only.

    Source: AUTOTRAINER (ICSE 2021) counts epochs whose accuracy varies by 0.03. The noise of
    healthy trainings reaches 0.7, so the outcome decides; that of trainings that fail for other
    reasons reaches 0.1.

    Args:
        swing: noise of block means, relative to their mean.
        patience: number of consecutive checks, five steps apart; rules that know the cause check
            every 20 steps.
    """

    fault = "oscillating_loss"
    consequences = ("outcome",)
    position = 380
    inapplicable = Reasons(
        xgboost="rounds that are too long make it rise: learning_rate_too_high says so"
    )
    needs_poor_outcome = False

    def __init__(self, swing: float = 0.15, patience: int = 5) -> None:
        super().__init__(patience)
        require_above(0, swing=swing)
        self.swing = swing
        self.needs = (Need("losses"),)
        self.rate = LearningRateSignal()
        self.targets = MovingTargets()
        self.aimless = AimlessLosses()
        self._start: dict[str, list[float]] = {}
        self._losses: dict[str, deque[float]] = {}

    def is_checked(self, step: Step) -> bool:
        """See `SymptomRule.is_checked`: every fifth train step once 100 losses are available."""
        for name, value in step.scalars_of("losses").items():
            if self.aimless.includes(name):
                self._losses.pop(name, None)
            elif math.isfinite(value):
                start = self._start.setdefault(name, [])
                if len(start) < _BLOCKS:
                    start.append(bounded(value))
                kept = self._losses.setdefault(name, deque(maxlen=_BLOCK * _BLOCKS))
                kept.append(bounded(value))
        full = len(next(iter(self._losses.values()), ())) == _BLOCK * _BLOCKS
        return full and step.step % _BLOCK == 0

    def detect(self, step: Step) -> Symptom | None:  # noqa: ARG002 (it has kept the losses)
        """See `SymptomRule.detect`."""
        # With several losses, such as adversarial ones, each may oscillate while the model learns.
        if len(self._losses) != 1:
            return None
        name, kept = next(iter(self._losses.items()))
        losses = list(kept)
        means = [math.fsum(losses[i : i + _BLOCK]) / _BLOCK for i in range(0, len(losses), _BLOCK)]
        level = math.fsum(means) / len(means)
        noise = spread(means)
        if not noise > self.swing * abs(level) or not _turns(means) or _falls(means, noise):
            return None
        if self._ended():
            return None
        # The values of a policy gradient have both signs, so their mean may be about zero.
        start = math.fsum(map(abs, self._start[name])) / len(self._start[name])
        verdict = self.outcome.verdict().kind
        rise = level / start if start else math.inf
        short = name.removeprefix("losses/")
        thrown_up = rise > _THROWN_UP and self.targets.rule_out(short, rise)
        if verdict == "poor" or (verdict == "open" and thrown_up):
            found = self._symptom(name, noise / abs(level), level, start)
            return _diverged(found, rise) if thrown_up else found
        return None

    def _ended(self) -> bool:
        """Return whether a schedule has ended the training: the steps are too small for a swing."""
        history = self.rate.history
        return bool(history) and abs(history[-1][1]) < _ENDED * abs(self.rate.greatest)

    def _symptom(self, name: str, swing: float, level: float, start: float) -> Symptom:
        return Symptom(
            tensor=name,
            statistic="loss",
            value=swing,
            threshold=self.swing,
            confidence=_CONFIDENCE,
            seen=f"{name}, averaged over five steps, still swings by {swing:.0%} and "
            f"stays around {level:.4g} (start: {start:.4g})",
            cause="the steps are too large for such a small batch: each one undoes what the "
            "previous ones learned",
            remedy=f"{self.rate.scaled(0.1)}; use a larger batch, less momentum, or a decaying "
            "learning rate",
            evidence={"swing": swing, "level": level, "start": start},
            correction=self.rate.corrected(0.1),
        )


def _diverged(symptom: Symptom, rise: float) -> Symptom:
    """Return the symptom of a loss that oscillates far above its start: it has diverged."""
    return replace(
        symptom,
        cause="the learning rate is too high: steps are so large that the loss rose to "
        f"{rise:.2g}× its start and swings there instead of settling",
        fault="learning_rate_too_high",
    )


def _turns(means: list[float]) -> bool:
    changes = [later - earlier for earlier, later in pairwise(means)]
    turns = sum(one * other < 0 for one, other in pairwise(changes))
    return turns > _TURNS * (len(changes) - 1)


def _falls(means: list[float], noise: float) -> bool:
    half = len(means) // 2
    fall = (math.fsum(means[:half]) - math.fsum(means[half:])) / half
    return fall > _SURE * noise * math.sqrt(2 / half)
