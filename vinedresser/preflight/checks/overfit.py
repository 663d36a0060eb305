"""Does one batch overfit, and is the learning rate in a sane range?"""

from __future__ import annotations

import math

from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.trials import Fit, NotRepeatable
from vinedresser.preflight.verdict import fine, suspicious, unchecked

__all__ = ["learning_rate", "overfit"]

_STEPS = 300
# Steps without which nothing is said about a batch that is not learned.
_ENOUGH = 100
# Share of the first loss below which a batch is being learned.
_LEARNED = 0.9
# Share of the time for the checks that one run on a batch may take.
_SHARE = 0.15
_ADAMS = (1e-3, 1e-2, 1e-1)
# The range test (Smith, Cyclical Learning Rates for Training Neural Networks, WACV 2017, 3.3).
_LEAST, _MOST, _RANGE_STEPS = 1e-6, 10.0, 80


def overfit(evidence: Evidence) -> tuple[str, str]:
    """Train a copy on the first batch, with the optimizer of the script."""
    fit = _fitted(evidence)
    steps, where = len(fit.losses), f"after {len(fit.losses)} steps on one batch"
    if min(fit.losses) < 0:
        return unchecked("the loss is negative: it may have no least value")
    if not fit.finite:
        return suspicious(f"the loss is {fit.losses[-1]} {where}")
    change = f"{where}, the loss went from {fit.start:.4g} to {fit.end:.4g}"
    base = evidence.loss_of_constants()
    aim = fit.start if base is None else min(fit.start, base)
    if base == 0:
        # As that of a single sample.
        change = f"{change}, and a constant learns this batch, too"
        aim = fit.start
    if fit.end < _LEARNED * aim:
        return fine(change)
    why = ""
    if steps < _ENOUGH:
        why = f"only {steps} steps in the time"
    elif base is None or not base or aim < 0.9 * base:
        why = "the least loss is not known"
    elif not evidence.seen.constant_rates:
        why = "the learning rate is still changing"
    if why or base is None:
        return unchecked(f"{change}; {why}")
    if fit.end > 3 * max(fit.start, base):
        return suspicious(f"{change}: it rises")
    return _beside_others(evidence, fit, base, change)


def _beside_others(evidence: Evidence, fit: Fit, base: float, change: str) -> tuple[str, str]:
    """Judge a batch that is not learned, beside runs with Adam."""
    best, rate = _best(evidence)
    if best.end < 0.5 * base:
        if fit.end < 0.998 * fit.start:
            return unchecked(f"{change}; a slow training, which Adam at {rate:g} makes faster")
        return suspicious(f"{change}; Adam at {rate:g} learns the batch, to {best.end:.4g}")
    if len(best.losses) < _ENOUGH or best.end < 0.98 * base or not _large_enough(evidence):
        return unchecked(f"{change}; with Adam, to {best.end:.4g}")
    return suspicious(
        f"{change}, and no learning rate of Adam does better than {best.end:.4g}; outputs that "
        f"ignore the inputs reach {base:.4g}"
    )


def learning_rate(evidence: Evidence) -> tuple[str, str]:
    """Compare the learning rate with a range test on the first batch."""
    seen, trials = evidence.seen, evidence.trials
    if not seen.constant_rates:
        return unchecked("the learning rate is still changing")
    rate = max(seen.steps[-1].rates, default=math.nan)
    if not rate > 0:
        return unchecked(f"the learning rate is {rate:g}")
    if trials.first.closure:
        return unchecked("the optimizer chooses its steps by a closure")
    models, optimizer = trials.copies()
    rates = _rates(rate)
    losses = trials.train(
        models, optimizer, _RANGE_STEPS, _SHARE * evidence.seconds, rates=iter(rates)
    )
    if len(losses) < _RANGE_STEPS and math.isfinite(losses[-1]):
        return unchecked("no time left for a range test")
    least = min(range(len(losses)), key=lambda at: _finite(losses[at]))
    bad = [
        at
        for at in range(least, len(losses))
        if _finite(losses[at]) > 4 * losses[0] + 4 * abs(losses[least])
    ]
    upper = rates[bad[0]] if bad else math.inf
    said = f"the loss falls up to {rates[least]:.2g}" + (f", breaks at {upper:.2g}" if bad else "")
    if rate <= rates[least]:
        return fine(f"{rate:g}; in a range test, {said}")
    return _above_range(rate, upper, said, _fitted(evidence), evidence.loss_of_constants())


def _above_range(
    rate: float, upper: float, said: str, fit: Fit, base: float | None
) -> tuple[str, str]:
    """Judge a rate above the best one of a range test by a run on one batch."""
    if rate > 3 * upper and (not fit.finite or fit.end > max(fit.start, base or fit.start)):
        return suspicious(f"{rate:g} is too high: in a range test, {said}")
    if fit.finite and fit.end < fit.start - (1 - _LEARNED) * abs(fit.start):
        return fine(f"{rate:g}, which learns one batch; in a range test, {said}")
    return unchecked(f"{rate:g} may be too high: in a range test, {said}")


def _fitted(evidence: Evidence) -> Fit:
    return evidence.trials.fit("script", _STEPS, 2 * _SHARE * evidence.seconds)


def _best(evidence: Evidence) -> tuple[Fit, float]:
    """Return the best of some runs with Adam, and its learning rate."""
    runs = []
    for rate in _ADAMS:
        try:
            fit = evidence.trials.fit(f"adam {rate}", _STEPS, _SHARE * evidence.seconds, rate)
        except NotRepeatable:
            # The fits so far count.
            break
        if fit.finite:
            runs.append((fit, rate))
    if not runs:
        raise NotRepeatable("no time left to try other learning rates")
    return min(runs, key=lambda run: run[0].end)


def _large_enough(evidence: Evidence) -> bool:
    """Return whether the models have more parameters than the batch has targets."""
    function = evidence.trials.first.function
    number = sum(parameter.numel() for parameter in evidence.seen.parameters().values())
    return function is not None and number >= 4 * function.compared.predictions.size


def _rates(rate: float) -> list[float]:
    """Return the learning rates of a range test, which go beyond a rate."""
    factor = (max(_MOST, _MOST * rate) / _LEAST) ** (1 / (_RANGE_STEPS - 1))
    return [_LEAST * factor**at for at in range(_RANGE_STEPS)]


def _finite(loss: float) -> float:
    return loss if math.isfinite(loss) else math.inf
