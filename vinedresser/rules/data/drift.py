"""Rule: the inputs have changed, and the evaluations are worse since."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_at_least, require_between
from vinedresser.rules.data.input_history import ALL, InputHistory, Sample, Shift, shift
from vinedresser.rules.data.lasting_harm import Harm, LastingHarm
from vinedresser.rules.need import Need
from vinedresser.rules.signals.bounded import finite_scalars
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.step_record import Mode

__all__ = ["Drift"]

_COLLECTION, _MEAN, _STD = "model_inputs", "channel_mean", "channel_std"
_EVERY = 10
# Samples before and after the change, at most: inputs that change slowly are not compared with
# those of long ago.
_SAMPLES = 64
# Samples right before the harm.
_LAST = 4


class Drift(OnceRule):
    """The inputs of the training have changed, and its evaluations are worse since.

    Fires when the evaluations became worse from one to the next (a loss, or a metric whose name
    tells what is better) by ``share``, have been so for ``patience`` evaluations, and none of them
    is better, while the inputs of the training after that differ from those before: the mean of a
    channel moved by ``distance`` standard deviations, or its standard deviation changed by
    ``factor``, either by eight standard errors. Channels are the features of rows, and the colours
    of images.

    A training without evaluations is not judged: whether other inputs do harm or are intended, as
    in a curriculum or in reinforcement learning, only evaluations tell. Integers, such as token
    indices, are ignored.

    Args:
        distance: change of a mean, in standard deviations of the channel.
        factor: change of a standard deviation, above 1.
        share: change of an evaluation, as a share of its value.
        patience: number of evaluations.
    """

    severity = "warning"
    fault = "drift"
    stage = "data"
    consequences = ("outcome", "oscillating_loss", "overfitting")
    position = 110
    inapplicable = Reasons(xgboost="all rows are there before the first round")
    modes: ClassVar[tuple[Mode, ...]] = ("train", "eval")

    def __init__(
        self, distance: float = 0.3, factor: float = 1.5, share: float = 0.2, patience: int = 3
    ) -> None:
        require_above(0, distance=distance)
        require_above(1, factor=factor)
        require_between(0, 1, share=share)
        require_at_least(2, patience=patience)
        self.distance, self.factor = distance, factor
        self.share, self.patience = share, patience
        self.needs = (
            Need(_COLLECTION, every=_EVERY, reductions=(_MEAN, _STD), required=False),
            Need("losses", modes=("eval",), required=False),
            Need("metrics", modes=("eval",), required=False),
        )
        self._evaluations = LastingHarm(share, patience)
        self._inputs: dict[str, InputHistory] = {}

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        if step.mode == "train":
            means = step.vectors_of(_COLLECTION, _MEAN)
            for name, stds in step.vectors_of(_COLLECTION, _STD).items():
                if name in means:
                    history = self._inputs.setdefault(name, InputHistory())
                    history.add(step.step, np.asarray(means[name]), np.asarray(stds))
            return None
        if not self._inputs:
            return None
        losses, metrics = (finite_scalars(step.scalars_of(kind)) for kind in ("losses", "metrics"))
        if not losses and not metrics:
            return None
        self._evaluations.add(step.step, losses, metrics)
        harm = self._evaluations.harm()
        return None if harm is None else self._finding(step, harm)

    def _finding(self, step: Step, harm: Harm) -> Finding | None:
        """Return the finding if the inputs changed when the harm began."""
        found: list[tuple[Shift, str, int]] = []
        for name, history in self._inputs.items():
            # The train step with the number of an evaluation comes after it.
            before = history.between(-math.inf, harm.last - 1)[-_SAMPLES:]
            after = history.between(harm.first, math.inf)[:_SAMPLES]
            change = shift(before, after, distance=self.distance, factor=self.factor)
            if change is not None and _sudden(change, before):
                between = history.between(harm.last, harm.first - 1)
                found.append((change, name, _onset(change, between, after)))
        if not found:
            return None
        change, name, since = max(found, key=lambda one: one[0].channels)
        return self.found(
            step,
            since=since,
            tensor=name,
            statistic=change.statistic,
            value=change.distance,
            threshold=self.distance if change.statistic == "mean" else self.factor,
            confidence=0.85,
            seen=f"since step {since}, {_in_words(name, change)}; {harm.name} on evaluation data "
            f"was {harm.before:.4g} at step {harm.last} and is {harm.after:.4g} at best now",
            cause="the training reads other data than before, or prepares them differently: "
            "another file or source, rows that are not shuffled, or a transformation that was "
            "added or lost, for example when the training was resumed",
            remedy=f"compare a batch before step {since} with one after it, right before the model "
            "is called; shuffle the rows of all sources",
            evidence={
                "channel": "all" if change.channel == ALL else change.channel,
                "before": change.before,
                "after": change.after,
                "share_of_channels": change.channels,
                "evaluation": harm._asdict(),
            },
        )


def _sudden(change: Shift, before: list[Sample]) -> bool:
    """Return whether the last samples before the harm are like those before them.

    If they are like those after it, the change was harmless: the evaluations became worse later.
    """
    values = _values(change, before[-_LAST:])
    return abs(sum(values) / len(values) - change.before) < abs(change.after - change.before) / 2


def _values(change: Shift, samples: list[Sample]) -> list[float]:
    """Return the statistic that changed, by sample."""
    at = change.channel + 1
    return [float((one.means if change.statistic == "mean" else one.stds)[at]) for one in samples]


def _onset(change: Shift, between: list[Sample], after: list[Sample]) -> int:
    """Return the step of the first sample, after the last good evaluation, that has changed."""
    middle = (change.before + change.after) / 2
    for sample, value in zip(between, _values(change, between), strict=True):
        if (value > middle) == (change.after > change.before):
            return sample.step
    return after[0].step


def _in_words(name: str, change: Shift) -> str:
    """Return text such as "the mean of channel 3 of inputs/net is 0.5 (before: 2)"."""
    what = "mean" if change.statistic == "mean" else "standard deviation"
    where = name if change.channel == ALL else f"channel {change.channel} of {name}"
    others = ""
    if change.channel != ALL and change.channels > 0:
        others = f" ({change.channels:.0%} of the channels have changed)"
    return f"the {what} of {where} is {change.after:.3g} (before: {change.before:.3g}){others}"
