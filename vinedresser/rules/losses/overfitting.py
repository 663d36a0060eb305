"""Rule: the training loss keeps falling while the evaluation loss rises."""

from __future__ import annotations

import math
from collections import deque
from statistics import NormalDist, fmean
from typing import NamedTuple

from vinedresser.rules.advice import Advice
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_at_least, require_between
from vinedresser.rules.need import Need
from vinedresser.rules.signals.bounded import finite_scalars
from vinedresser.rules.signals.losses.missing_labels import MissingLabels
from vinedresser.rules.signals.outcomes.evaluation_series import (
    Evaluation,
    EvaluationSeries,
    Parting,
)
from vinedresser.rules.signals.outcomes.fit import Fit
from vinedresser.rules.signals.outcomes.metric_scale import direction
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

# Share by which the training loss must have fallen from the mean of its first steps, a single one
# of which may have a difficult batch, for the hint that nothing improves any more.
_LEARNED = 0.1
_FIRST = 10
_NO_BETTER = 0.7

_MEMORISED = Advice(
    cause="the model memorises its training data: too little data, too many parameters, or too "
    "many epochs",
    remedy="; use more data or augmentation, weight decay, dropout, or a smaller model",
)
_CERTAIN = Advice(
    cause="the model becomes too certain of its predictions, of which about as many are "
    "right as before",
    remedy=" if probabilities matter; label smoothing or weight decay keep them from becoming too "
    "certain, and temperature scaling corrects them afterwards",
)


class _Best(NamedTuple):
    """Lowest of some losses, its step, and the number of evaluations since then."""

    loss: float
    step: int
    since: int = 0

    def then(self, loss: float, step: int, delta: float) -> _Best:
        """Return the best after one more loss, which must be lower by a share of it."""
        if loss < self.loss - delta * abs(self.loss):
            return _Best(loss, step)
        return self._replace(since=self.since + 1)


class Overfitting(OnceRule):
    """The evaluation loss has risen from its minimum while the training loss kept falling.

    Fires when each of the last ``patience`` evaluations is above the minimum by more than
    ``ratio``, their mean is so by two standard errors of the evaluations' noise, and the mean
    training loss in that period is lower than at the minimum, by 5 % and by its own noise.

    ``ratio`` refers to the minimum evaluation loss. For losses that are not in the unit of the
    targets (cross-entropies) it refers to at least 1/2, or to the first evaluation if that is
    smaller: a cross-entropy that rises from 0.05 to 0.08 is harmless. Does not fire while a metric
    on evaluation data is better than at the minimum, nor if an evaluation before training was more
    than twice the first training loss: then the training has an easier task (a curriculum), nor if
    one of the last ``patience`` evaluations had classes that the training lacked meanwhile, as of
    its other tasks (`MissingLabels`). It is a warning by default: the best evaluation is behind,
    but going on may be intended.

    Where only probabilities become worse, this is a hint, "info": no score such as the accuracy,
    reported or of captured predictions, is lower than at the minimum by 2 % (captured ones by 0.05)
    and its noise, and the cross-entropy is still below 0.25 and half of the first training loss.

    Another hint, "info", tells where neither loss improves any more: for ``plateau`` evaluations,
    neither the evaluation loss nor the mean training loss between evaluations was lower than its
    best by more than ``delta``, in a training that has learned.

    Args:
        ratio: rise of the evaluation loss at which the rule fires, as a share of its minimum.
        patience: number of evaluations.
        plateau: number of evaluations without an improvement, after which there is a hint.
        delta: share of the best loss by which a loss must be lower to be an improvement.
    """

    severity = "warning"
    fault = "overfitting"
    stage = "generalisation"
    position = 420
    predecessors = ("overfit", "overtraining")
    modes = ("train", "eval")

    def __init__(
        self, ratio: float = 0.1, patience: int = 5, plateau: int = 10, delta: float = 0.01
    ) -> None:
        require_above(0, ratio=ratio)
        require_at_least(2, patience=patience, plateau=plateau)
        require_between(0, 1, delta=delta)
        self.ratio = ratio
        self.patience = patience
        self.plateau = plateau
        self.delta = delta
        self.needs = (
            Need("losses", modes=("train",)),
            Need("losses", modes=("eval",)),
            Need("metrics", modes=("eval",), required=False),
        )
        self.fit = Fit()
        self.labels = MissingLabels()
        # Whether labels were missing in each of the last evaluations.
        self._missing: deque[bool] = deque(maxlen=patience)
        # Sum and count of the training losses since the last evaluation.
        self._train: dict[str, tuple[float, int]] = {}
        # First training losses.
        self._first: dict[str, list[float]] = {}
        self._series: dict[str, EvaluationSeries] = {}
        # By mode and name of the loss; that of the training is the mean between evaluations.
        self._best: dict[tuple[str, str], _Best] = {}
        # Mean training losses between the last evaluations.
        self._recent: dict[str, deque[float]] = {}
        self._hinted = False
        self._too_certain = False

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        losses = finite_scalars(step.scalars_of("losses"))
        if step.mode == "train":
            for name, value in losses.items():
                total, count = self._train.get(name, (0.0, 0))
                self._train[name] = (total + value, count + 1)
                first = self._first.setdefault(name, [])
                if len(first) < _FIRST:
                    first.append(value)
            return None
        for name in self._train:
            self._note(("train", name), self._mean(name), step.step)
            self._recent.setdefault(name, deque(maxlen=self.plateau)).append(self._mean(name))
        metrics = finite_scalars(step.scalars_of("metrics"))
        for name, value in losses.items():
            series = self._series.setdefault(name, EvaluationSeries(name))
            mean, accuracy = self._mean(self._paired(name)), self._accuracy(step)
            series.add(Evaluation(step.step, value, mean, metrics, accuracy))
            self._note(("eval", name), value, step.step)
        self._train = dict.fromkeys(self._train, (0.0, 0))
        if losses:
            self._missing.append(self.labels.missing)
        for name in () if any(self._missing) else losses:
            start = self._first.get(self._paired(name), [math.nan])[0]
            parting = self._series[name].parting(self.ratio, self.patience, start)
            if parting and not parting.certain:
                return self._finding(step, name, parting)
            if parting and not self._too_certain:
                self._too_certain = True
                return self._finding(step, name, parting)
        return self._hint(step) if losses and not self._hinted and self._stands() else None

    def _once(self, finding: Finding | None) -> Finding | None:
        # The hint does not keep the rule from finding that the evaluations become worse.
        self._done |= finding is not None and finding.fault == self.fault
        return finding

    def _accuracy(self, step: Step) -> float:
        """Return the accuracy of captured predictions; NaN if unknown, or not above guessing."""
        series = [one for one in self.fit.of("eval").values() if one.task != "values"]
        gains = [gain for one in series if (gain := one.gain(last=1)) and gain.step == step.step]
        # A loss and what a script makes of it, such as its mean, have the same labels.
        scores = {(gain.score, gain.chance) for gain in gains}
        if len(gains) < len(series) or len(scores) != 1:
            return math.nan
        gain = gains[0]
        if gain.score <= gain.chance:
            return math.nan
        return gain.score

    def _paired(self, name: str) -> str:
        """Return the training loss that matches an evaluation loss: by name, or the only one."""
        return next(iter(self._train)) if len(self._train) == 1 else name

    def _mean(self, name: str) -> float:
        """Return the mean of a training loss since the last evaluation; NaN if there is none."""
        total, count = self._train.get(name, (0.0, 0))
        return total / count if count else math.nan

    def _note(self, loss: tuple[str, str], value: float, step: int) -> None:
        if not math.isnan(value):
            best = self._best.get(loss)
            self._best[loss] = best.then(value, step, self.delta) if best else _Best(value, step)

    def _stands(self) -> bool:
        """Return whether no loss improves any more, and some training loss is below its start."""
        learned = [
            fmean(self._recent[name]) < start - _LEARNED * abs(start)
            for name, start in ((name, fmean(values)) for name, values in self._first.items())
            if name in self._recent
        ]
        return any(learned) and all(best.since >= self.plateau for best in self._best.values())

    def _hint(self, step: Step) -> Finding:
        """Return the hint that neither loss improves any more."""
        self._hinted = True
        name, best = next(
            (name, best) for (mode, name), best in self._best.items() if mode == "eval"
        )
        last = max(one.step for one in self._best.values())
        return self.found(
            step,
            since=last,
            tensor=name,
            statistic="loss",
            value=best.loss,
            threshold=best.loss * (1 - self.delta),
            confidence=_NO_BETTER,
            seen=f"{name} on evaluation data was best at step {best.step} with {best.loss:.4g}; "
            f"for {self.plateau} evaluations neither it nor the training loss improved by "
            f"{self.delta:.0%}",
            cause="the model has learned all it can with this learning rate",
            remedy=f"stop at step {last}, or lower the learning rate there",
            severity="info",
            fault="",
            evidence={"best_step": best.step, "best_loss": best.loss},
        )

    def _finding(self, step: Step, name: str, parting: Parting) -> Finding:
        best, now = parting.best, parting.recent[-1]
        metrics = "".join(
            f", {metric.rpartition('/')[2]} {value:.3g} (then {best.metrics[metric]:.3g})"
            for metric, value in now.metrics.items()
            if direction(metric) and metric in best.metrics
        )
        if not metrics and not math.isnan(best.accuracy - now.accuracy):
            metrics = f", accuracy {now.accuracy:.3g} (then {best.accuracy:.3g})"
        return self.found(
            step,
            since=best.step,
            tensor=name,
            statistic="loss",
            value=parting.rise,
            threshold=self.ratio,
            confidence=NormalDist().cdf(parting.margin),
            seen=f"{name} on evaluation data is {now.loss:.4g} (best {best.loss:.4g} at step "
            f"{best.step}), while on training data it went from {parting.train_then:.3g} to "
            f"{parting.train_now:.3g}{metrics}",
            cause=(_CERTAIN if parting.certain else _MEMORISED).cause,
            remedy=f"stop at step {best.step}"
            + (_CERTAIN if parting.certain else _MEMORISED).remedy,
            severity="info" if parting.certain else None,
            fault="" if parting.certain else self.fault,
            evidence={
                "best_step": best.step,
                "best_loss": best.loss,
                "train_loss_then": parting.train_then,
                "train_loss_now": parting.train_now,
                "evaluations": [[one.step, one.loss] for one in parting.recent],
                "noise": parting.noise,
            },
        )
