"""Whether a run learns: its training losses and its metrics together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.losses.loss_progress import LossProgress
from vinedresser.rules.signals.outcomes.metric_trend import MetricTrend

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["LearningOutcome"]


class LearningOutcome(Signal):
    """How the losses and metrics of rank 0 have moved so far; the losses of all ranks are alike.

    Where there are several losses, one that falls is enough: a part of a sum may rise while the
    whole is learned, as the divergence term of a variational autoencoder does. The losses of
    adversaries (several optimizers, with a model or a loss each) are no descent: what one gains the
    other loses, so that where they stand says nothing.

    Args:
        patience: see `LossProgress`.
        drop: see `LossProgress`.

    Attributes:
        losses: the progress of each training loss, by name.
        renewed: there is enough new in the last step to ask again.
    """

    needs = (Need("losses"), Need("metrics", modes=("train", "eval"), required=False))

    def __init__(self, patience: int, drop: float) -> None:
        self.patience = patience
        self.drop = drop
        self.losses: dict[str, LossProgress] = {}
        self.renewed = False
        self._metrics: dict[tuple[str, str], MetricTrend] = {}
        self._optimizers = 0
        self._models = 0

    def begin(self, info: RunRecord) -> None:
        """Take note of how many models and optimizers there are."""
        self._optimizers = len(info.optimizers)
        self._models = sum("model" in facts[2:] for facts in info.modules.values())

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.renewed = False
        if step.rank != 0 or step.mode == "predict":
            return
        for name, value in step.scalars_of("metrics").items():
            self._metrics.setdefault((name, step.mode), MetricTrend(name)).add(value)
        if step.mode != "train":
            return
        for name, value in step.scalars_of("losses").items():
            if name not in self.losses:
                self.losses[name] = LossProgress(self.patience, self.drop)
            self.renewed |= self.losses[name].add(step.step, value)

    def ripe(self) -> bool:
        """Say whether there are enough losses to ask whether it has learned."""
        return any(progress.ripe() for progress in self.losses.values())

    def learned(self, drop: float | None = None) -> bool:
        """Say whether a loss lies surely below its start (`LossProgress.learned`)."""
        return any(progress.learned(drop) for progress in self.losses.values())

    @property
    def adversaries(self) -> bool:
        """Whether the losses may be against each other."""
        return self._optimizers > 1 and (self._models > 1 or len(self.losses) > 1)

    def nowhere(self, rise: float) -> bool:
        """Say whether all losses stand still at their start, or stay far above it.

        Args:
            rise: see `LossProgress.blown_up`.
        """
        losses = self.losses.values()
        still = not self.adversaries
        return bool(losses) and all(one.blown_up(rise) or (still and one.stuck()) for one in losses)

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
