"""Whether a run learns: its training losses and its metrics together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinedresser.rules.base import Need
from vinedresser.rules.loss_progress import LossProgress
from vinedresser.rules.metric_trend import MetricTrend

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step

__all__ = ["OUTCOME_NEEDS", "LearningOutcome"]

OUTCOME_NEEDS = (
    Need("losses"),
    Need("metrics", modes=("train", "eval"), required=False),
)


class LearningOutcome:
    """How the losses and metrics of rank 0 have moved so far; the losses of all ranks are alike.

    Where there are several losses, one that falls is enough: a part of a sum may rise while the
    whole is learned, as the divergence term of a variational autoencoder does.

    Args:
        patience: see `LossProgress`.
        drop: see `LossProgress`.

    Attributes:
        losses: the progress of each training loss, by name.
    """

    def __init__(self, patience: int, drop: float) -> None:
        self.losses: dict[str, LossProgress] = {}
        self._patience = patience
        self._drop = drop
        self._metrics: dict[tuple[str, str], MetricTrend] = {}

    def add(self, step: Step) -> bool:
        """Take in a step; return whether there is enough new to ask again."""
        if step.rank != 0 or step.mode == "predict":
            return False
        for name, value in step.scalars_of("metrics").items():
            self._metrics.setdefault((name, step.mode), MetricTrend(name)).add(value)
        if step.mode != "train":
            return False
        completed = False
        for name, value in step.scalars_of("losses").items():
            if name not in self.losses:
                self.losses[name] = LossProgress(self._patience, self._drop)
            completed |= self.losses[name].add(step.step, value)
        return completed

    def ripe(self) -> bool:
        """Say whether there are enough losses to ask whether it has learned."""
        return any(progress.ripe() for progress in self.losses.values())

    def learned(self, drop: float | None = None) -> bool:
        """Say whether a loss lies surely below its start (`LossProgress.learned`)."""
        return any(progress.learned(drop) for progress in self.losses.values())

    def improving_metric(self) -> str | None:
        """Return the name of a metric that gets better; None when there is none."""
        for (name, _), trend in self._metrics.items():
            if trend.improving():
                return name
        return None

    def metrics_in_words(self) -> str:
        """Return such as ", accuracy 0.11 and not rising"; "" without metrics that tell."""
        words = {
            name: f", {name.rpartition('/')[2]} {trend.last:.3g} and not "
            f"{'rising' if trend.direction > 0 else 'falling'}"
            for (name, _), trend in self._metrics.items()
            if trend.direction and not trend.improving()
        }
        return "".join(words.values())
