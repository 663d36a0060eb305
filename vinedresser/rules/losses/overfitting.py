"""Rule: the training loss keeps falling while the evaluation loss rises."""

from __future__ import annotations

import math
from statistics import NormalDist

from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_at_least
from vinedresser.rules.need import Need
from vinedresser.rules.signals.bounded import finite_scalars
from vinedresser.rules.signals.outcomes.evaluation_series import (
    Evaluation,
    EvaluationSeries,
    Parting,
)
from vinedresser.rules.signals.outcomes.metric_scale import direction
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step


class Overfitting(OnceRule):
    """The evaluation loss has risen from its minimum while the training loss kept falling.

    Fires when each of the last ``patience`` evaluations is above the minimum by more than
    ``ratio``, their mean is so by two standard errors of the evaluations' noise, and the mean
    training loss in that period is lower than at the minimum, by 5 % and by its own noise.

    ``ratio`` refers to the minimum evaluation loss. For losses that are not in the unit of the
    targets (cross-entropies) it refers to at least 1/2, or to the first evaluation if that is
    smaller: a cross-entropy that rises from 0.05 to 0.08 is harmless. Does not fire while a metric
    on evaluation data is better than at the minimum, nor if an evaluation before training was more
    than twice the first training loss: then the training has an easier task (a curriculum). It is
    a warning by default: the best evaluation is behind, but going on may be intended.

    Args:
        ratio: rise of the evaluation loss at which the rule fires, as a share of its minimum.
        patience: number of evaluations.
    """

    severity = "warning"
    fault = "overfitting"
    stage = "generalisation"
    consequences = ("overtraining",)
    position = 420
    predecessor = "overfit"
    modes = ("train", "eval")

    def __init__(self, ratio: float = 0.1, patience: int = 5) -> None:
        require_above(0, ratio=ratio)
        require_at_least(2, patience=patience)
        self.ratio = ratio
        self.patience = patience
        self.needs = (
            Need("losses", modes=("train",)),
            Need("losses", modes=("eval",)),
            Need("metrics", modes=("eval",), required=False),
        )
        # Sum and count of the training losses since the last evaluation.
        self._train: dict[str, tuple[float, int]] = {}
        self._start: dict[str, float] = {}
        self._series: dict[str, EvaluationSeries] = {}

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        losses = finite_scalars(step.scalars_of("losses"))
        if step.mode == "train":
            for name, value in losses.items():
                total, count = self._train.get(name, (0.0, 0))
                self._train[name] = (total + value, count + 1)
                self._start.setdefault(name, value)
            return None
        metrics = finite_scalars(step.scalars_of("metrics"))
        for name, value in losses.items():
            series = self._series.setdefault(name, EvaluationSeries(name))
            series.add(Evaluation(step.step, value, self._mean(self._paired(name)), metrics))
        self._train = dict.fromkeys(self._train, (0.0, 0))
        for name in losses:
            start = self._start.get(self._paired(name), math.nan)
            parting = self._series[name].parting(self.ratio, self.patience, start)
            if parting:
                return self._finding(step, name, parting)
        return None

    def _paired(self, name: str) -> str:
        """Return the training loss that matches an evaluation loss: by name, or the only one."""
        return next(iter(self._train)) if len(self._train) == 1 else name

    def _mean(self, name: str) -> float:
        """Return the mean of a training loss since the last evaluation; NaN if there is none."""
        total, count = self._train.get(name, (0.0, 0))
        return total / count if count else math.nan

    def _finding(self, step: Step, name: str, parting: Parting) -> Finding:
        best, now = parting.best, parting.recent[-1]
        metrics = "".join(
            f", {metric.rpartition('/')[2]} {value:.3g} (then {best.metrics[metric]:.3g})"
            for metric, value in now.metrics.items()
            if direction(metric) and metric in best.metrics
        )
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
            cause="the model memorises its training data: too little data, too many parameters, "
            "or too many epochs",
            remedy=f"stop at step {best.step}; use more data or augmentation, weight decay, "
            "dropout, or a smaller model",
            evidence={
                "best_step": best.step,
                "best_loss": best.loss,
                "train_loss_then": parting.train_then,
                "train_loss_now": parting.train_now,
                "evaluations": [[one.step, one.loss] for one in parting.recent],
                "noise": parting.noise,
            },
        )
