"""Whether a run learns, by its training losses and metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.bounded import bounded
from vinedresser.rules.signals.losses.aimless_losses import AimlessLosses
from vinedresser.rules.signals.losses.loss_progress import LossProgress, spread
from vinedresser.rules.signals.outcomes.metric_scale import (
    direction,
    is_best,
    is_error,
    is_return,
    metric_scale,
    tells_learning,
)
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = [
    "LEAST_SHARE",
    "Guessed",
    "LearningOutcome",
    "MetricTrend",
    "fallen",
    "several_trained",
]

# Share of its start by which a loss must fall to show that anything is learned.
LEAST_SHARE = 0.03
# Share of a run in whose rest a metric has to have a value to tell how the run ended.
_LATE = 0.5
# Gain below which a bounded metric shows that the opposite is learned, minimum number of its
# values, of which the last quarter counts, and fall of the loss that shows that it was learned.
_OPPOSITE, _FEWEST_VALUES, _LEARNED = -0.3, 6, 0.3
# Train steps after which it counts: the running mean of an untrained model may fall by chance.
_FEWEST_TRAINED = 100
# Fewest values of a metric at chance in evaluations, the largest gain that is chance there, and
# what boosters put before the name of a metric.
_FEWEST_EVALUATIONS, _AT_CHANCE = 10, 0.04
_OF_SET = re.compile(r"^validation_\d+[-_]")
# Kinds of metrics that a frequent class does not raise; beside one, an accuracy does not count.
_UNMOVED = ("AUC", "F1", "MCC", "balanced accuracy", "kappa", "macro F1", "mean IoU")
_MOST_VALUES = 128
_SURE, _VERY_SURE = 2.0, 3.0
_FEWEST = 4
# Learning only the class frequencies improves an accuracy slightly.
_LEAST = 0.1
# Share of the first values that a metric has lost that became worse.
_LOST = 0.5
# Values of a metric that stands: fewest, share of all, and the first ones that it is compared with.
_STANDING, _SHARE_STANDING, _BEFORE = 40, 0.5, 4
# Fewest values of what never changes in evaluations: of a loss or an error, and of metrics that
# change with a prediction only; digits of rounded values, and the rounding of float32; and the
# largest gain of the latter, since a good model may change no prediction.
_FROZEN, _FROZEN_COUNTS, _DIGITS, _ROUNDED, _FROZEN_GAIN = 5, 8, 4, 1e-6, 0.5
# Share of the range of a metric, at its best end, in which it may be at its best.
_NEAR_BEST = 0.1
# Share of the way from guessing to perfect, of metrics that show no progress.
_EIGHTH = 0.125
# Fewest steps of the patience with a loss, whose blocks are single steps then.
_FEWEST_STEPS = 20


class Guessed(NamedTuple):
    """A metric with values that guessing, or an untrained policy, reaches.

    Attributes:
        name: its full name.
        value: mean of its last values.
        values: number of values so far.
        words: a description with numbers.
        since: step of its first value.
    """

    name: str
    value: float
    guessing: float
    values: int
    words: str
    since: int


class LearningOutcome(Signal):
    """The progress of the losses and metrics of rank 0; other ranks have similar losses.

    If there are several losses, one that falls is enough: a part of a sum may rise while the model
    learns, like the divergence term of a variational autoencoder. The losses of adversaries
    (several optimizers, each with a model or a loss) need not fall: one gains what the other loses.
    Policy gradients are left out: they do not fall either, since the model makes its own data. What
    guessing reaches depends on the number of classes of the task, 0 if it is unknown.

    Args:
        patience: see `LossProgress`.
        drop: see `LossProgress`.

    Attributes:
        losses: progress of each training loss by name.
        renewed: whether the last step completed a block, so that judging again makes sense.
    """

    needs = (
        Need("losses"),
        Need("metrics", modes=("train", "eval"), required=False),
        Need("losses", modes=("eval",), required=False),
    )

    def __init__(self, patience: int, drop: float) -> None:
        self.patience = patience
        self.drop = drop
        self.losses: dict[str, LossProgress] = {}
        self.renewed = False
        self._metrics: dict[tuple[str, str], MetricTrend] = {}
        self._evaluated: dict[tuple[str, str], MetricTrend] = {}
        # The steps of the last and first value of each metric, and of the last train step.
        self._reported: dict[tuple[str, str], int] = {}
        self._since: dict[tuple[str, str], int] = {}
        self._step = 0
        self._optimizers = 0
        self._several_trained = False
        self.aimless = AimlessLosses()

    def on_record(self, info: RunRecord) -> None:
        """Read the number of models and optimizers."""
        self._optimizers = len(info.optimizers)
        self._several_trained = several_trained(info)

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.renewed = False
        if step.rank != 0 or step.mode == "predict":
            return
        self._note(self._metrics, step, "metrics")
        if step.mode != "train":
            self._note(self._evaluated, step, "losses")
            return
        self._step = step.step
        for name, value in step.scalars_of("losses").items():
            if self.aimless.includes(name):
                self.losses.pop(name, None)
                continue
            if name not in self.losses:
                self.losses[name] = LossProgress(self.patience, self.drop)
            self.renewed |= self.losses[name].add(step.step, value)

    def _note(
        self, trends: dict[tuple[str, str], MetricTrend], step: Step, collection: str
    ) -> None:
        for name, value in step.scalars_of(collection).items():
            trends.setdefault((name, step.mode), MetricTrend(name)).add(value)
            self._reported[name, step.mode] = step.step
            self._since.setdefault((name, step.mode), step.step)

    def learned(self, drop: float) -> bool:
        """Return whether a loss is certainly below its start (`LossProgress.learned`)."""
        return any(progress.learned(drop) for progress in self.losses.values())

    @property
    def adversaries(self) -> bool:
        """Whether the losses may be those of adversaries."""
        return self._several_trained or (self._optimizers > 1 and len(self.losses) > 1)

    def nowhere(self, rise: float) -> bool:
        """Return whether all losses stand still at their start, or stay far above it.

        Args:
            rise: see `LossProgress.blown_up`.
        """
        losses = self.losses.values()
        still = not self.adversaries
        return bool(losses) and all(
            loss.blown_up(rise) or (still and loss.stuck()) for loss in losses
        )

    def risen_at_once(self) -> bool:
        """Return whether all losses are far above their first values from the first step on."""
        losses = self.losses.values()
        return bool(losses) and not self.adversaries and all(one.risen_at_once() for one in losses)

    def improving_metric(self) -> str | None:
        """Return the name of a metric that improves; None if there is none."""
        for (name, _), trend in self._metrics.items():
            if tells_learning(name) and trend.improving():
                return name
        return None

    def guessed(self, classes: int) -> Guessed | None:
        """Return a metric whose last values are those of guessing, or worse.

        None if any metric of known meaning is better, if none has a value in the second half of the
        run so far, or for adversaries: a discriminator ends by guessing.
        """
        found = self._scaled(classes)
        if not found or self.adversaries or any(gain > 0 for gain, _ in found.values()):
            return None
        return next(iter(found.values()))[1]

    def better_than_guessing(self, classes: int) -> bool:
        """Return whether a metric of known meaning is better than that of guessing."""
        return any(gain > 0 for gain, _ in self._scaled(classes).values())

    def _scaled(self, classes: int) -> dict[str, tuple[float, Guessed]]:
        """Return the gain of each metric of known meaning over guessing, by kind.

        The gain is 0 at the minimum that guessing does not reach by chance.
        """
        found: dict[str, tuple[float, Guessed]] = {}
        for key, trend in self._metrics.items():
            scale, recent = metric_scale(key[0], classes), trend.recent()
            if scale is None or not recent or self._reported[key] < _LATE * self._step:
                continue
            value = math.fsum(recent) / len(recent)
            gain = math.fsum(scale.gains(recent)) / len(recent) - scale.least
            words = f"{scale.kind} is {value:.3g}, where guessing gives {scale.guessing:.3g}"
            if scale.guessing == 0 and scale.share:
                words = f"{scale.kind} is {value:.3g}: nothing is found"
            kept = found.get(scale.kind)
            if kept is None or gain > kept[0]:
                one = Guessed(key[0], value, scale.guessing, trend.values, words, self._since[key])
                found[scale.kind] = (gain, one)
        if any(kind in found for kind in _UNMOVED):
            for raised in ("accuracy", "error rate"):
                found.pop(raised, None)
        return found

    def guessed_in_evaluation(self) -> Guessed | None:
        """Return a metric that is no better than guessing in evaluations, but on training rows.

        Only metrics whose value of guessing does not depend on the classes, such as AUC, that both
        modes report under names that differ by the set at most.
        """
        trained: dict[str, float] = {}
        guessed: dict[str, Guessed | None] = {}
        for (name, mode), trend in self._metrics.items():
            scale = metric_scale(_OF_SET.sub("", name.removeprefix("metrics/")), 0)
            if scale is None or not scale.two_sided or trend.values < _FEWEST_EVALUATIONS:
                continue
            gains = scale.gains(trend.recent())
            if mode == "train":
                trained[scale.kind] = max(trained.get(scale.kind, 0.0), *gains)
            elif max(gains) >= _AT_CHANCE:
                guessed[scale.kind] = None
            else:
                words = f"{scale.kind} is {trend.last:.3g} in evaluations"
                words = f"{words}, where guessing gives {scale.guessing:.3g}"
                since, count = self._since[name, mode], trend.values
                found = Guessed(name, trend.last, scale.guessing, count, words, since)
                guessed.setdefault(scale.kind, found)
        carried = [one for kind, one in guessed.items() if trained.get(kind, 0.0) >= _LEARNED]
        return next((one for one in carried if one is not None), None)

    def opposite(self, classes: int) -> Guessed | None:
        """Return a bounded metric that is far worse than guessing, as of a reversed ranking.

        Untrained models may be, by chance: 100 steps have passed, and the metric fell steadily, or
        a loss has fallen. None if any metric of known meaning is better, or for adversaries.
        """
        guessed = self.guessed(classes)
        if guessed is None:
            return None
        scale = metric_scale(guessed.name, classes)
        for (name, mode), trend in self._metrics.items():
            if (
                name != guessed.name
                or trend.values < _FEWEST_VALUES
                or self._step - self._since[name, mode] < _FEWEST_TRAINED
                or not scale
                or not scale.two_sided
            ):
                continue
            far = max(scale.gains(trend.recent())) < _OPPOSITE
            if far and (trend.worsened() or self.learned(_LEARNED)):
                return guessed
        return None

    def worse_return(self) -> Guessed | None:
        """Return the return of a policy that became worse than at its start.

        It fell steadily, by half, or to a constant that is worse than each of its first values.
        """
        for (name, mode), trend in self._metrics.items():
            if not is_return(name):
                continue
            short, since = name.rpartition("/")[2], self._since[name, mode]
            if lost := trend.worsened():
                words = f"{short} fell steadily from {lost[0]:.3g} to {lost[1]:.3g}"
                return Guessed(name, lost[1], lost[0], trend.values, words, since)
            if trend.stands_below_start():
                value, before = trend.last, trend.direction * trend.worst_before
                words = (
                    f"{short} fell to {value:.3g} and stands; at first it was {before:.3g} or more"
                )
                return Guessed(name, value, before, trend.values, words, since)
        return None

    def frozen(self, classes: int) -> Guessed | None:
        """Return a number of the evaluations that stays the same, to the bit, while a loss falls.

        The loss fell by 30 % since the first of its values. Losses and errors change whenever the
        model does; other metrics only with a prediction, so they must be far from perfect, and the
        loss fell by 30 % of its start: one that is almost 0 falls without a change of predictions.
        """
        if self.adversaries:
            return None
        for (name, mode), trend in {**self._evaluated, **self._metrics}.items():
            since, value = self._since[name, mode], trend.last
            error = name in self.losses or is_error(name)
            fallen = any(
                loss.learned(_LEARNED)
                and loss.fallen(self._step - since, of_start=not error) > _LEARNED
                for loss in self.losses.values()
            )
            stands = trend.equal == trend.values and not is_best(name)
            if not stands or not fallen or self._reported[name, mode] < _LATE * self._step:
                continue
            scale = metric_scale(name, classes)
            if error:
                rounded = float(f"{value:.{_DIGITS}g}")
                told = trend.values >= _FROZEN
                told = told and not math.isclose(rounded, value, rel_tol=_ROUNDED)
            else:
                gain = scale.gains([value])[0] if scale else math.inf
                # 0 is that of any model that finds nothing.
                told = trend.values >= _FROZEN_COUNTS and value != 0 and gain < _FROZEN_GAIN
            if told:
                words = f"{name.rpartition('/')[2]} was exactly {value:.6g} all"
                words = f"{words} {trend.values} times, while the training loss fell"
                guessing = scale.guessing if scale else 0.0
                return Guessed(name, value, guessing, trend.values, words, since)
        return None

    def unmoved_return(self) -> str:
        """Return that no return of a policy has risen, in words; "" if one has or none is known.

        One that stands at a value other than 0, or close to its greatest one, may be at its best.
        """
        known = [
            (name, one)
            for (name, _), one in self._metrics.items()
            if is_return(name) and one.values >= _FEWEST
        ]
        if any(one.rose() or (one.stands() and one.last) for _, one in known):
            return ""
        return ", ".join(
            f"{name.rpartition('/')[2]} was {one.first:.3g} at first and is {one.last:.3g} after "
            f"{one.values} values"
            for name, one in known
        )

    def barely_moved(self, classes: int) -> str:
        """Return that no metric of known meaning is far from guessing, in words; else "".

        Also "" if one improves.
        """
        found = self._scaled(classes)
        if self.adversaries or self.improving_metric():
            return ""
        if any(gain > _EIGHTH for gain, _ in found.values()):
            return ""
        return ", ".join(metric.words for _, metric in found.values())

    def metrics_in_words(self) -> str:
        """Return text such as ", accuracy 0.11 and not rising"; "" without such metrics."""
        words = {
            name: f", {name.rpartition('/')[2]} {trend.last:.3g} and not "
            f"{'rising' if trend.direction > 0 else 'falling'}"
            for (name, _), trend in self._metrics.items()
            if trend.direction and not trend.improving()
        }
        return "".join(words.values())


def fallen(losses: Mapping[str, Iterable[tuple[int, float]]]) -> tuple[bool, str]:
    """Return whether a loss of a short run has certainly fallen by `LEAST_SHARE` of its start.

    Also return where they began and are.

    Rules that judge what is learned wait for more steps: until then, nothing else tells it.

    Args:
        losses: steps and values by full name.
    """
    seen = []
    for name, values in losses.items():
        pairs = [*values]
        progress = LossProgress(max(_FEWEST_STEPS, len(pairs) * 4 // 5), 0.0)
        trend = MetricTrend("loss")
        for step, value in pairs:
            progress.add(step, value)
            trend.add(value)
        if not progress.values:
            continue
        now = progress.now()
        risen = progress.thrown_up() or progress.risen_at_once()
        start = progress.first if risen or now is None else progress.start()[0]
        level = trend.last if now is None else now.level
        short = name.partition("/")[2]
        # The former is sure after fewer steps, the latter in spite of more noise.
        sure = progress.learned(0.0) or trend.improving()
        if sure and level < start - LEAST_SHARE * abs(start):
            return True, f"{short} fell from {start:.4g} to {level:.4g}"
        seen.append(f"{short} was {start:.4g} and is {level:.4g}")
    return False, ", ".join(seen)


def several_trained(info: RunRecord) -> bool:
    """Return whether a training has several models and several optimizers, as adversaries have."""
    models = sum("model" in facts[2:] for facts in info.modules.values())
    return models > 1 and len(info.optimizers) > 1


class MetricTrend:
    """The values of one metric, in bounded memory: neighbours are averaged if there are many.

    Args:
        name: name of the metric, which determines the better direction.

    Attributes:
        direction: see `metric_scale.direction`.
        first, last: first and last value; NaN before.
        values: number of values.
        equal: how many values in a row equal the last one.
        worst_before: the worst of the first four values, times the direction.
    """

    def __init__(self, name: str) -> None:
        self.direction = direction(name)
        self.first = self.last = math.nan
        self.values = 0
        self.worst_before = math.inf
        self.equal = 0
        self._means: list[float] = []
        self._pending: list[float] = []
        self._per_mean = 1

    def add(self, value: float) -> None:
        """Process the next value; ignore it if it is not finite."""
        if not math.isfinite(value):
            return
        self.equal = self.equal + 1 if value == self.last else 1
        self.first = self.first if self.values else value
        self.last = value
        self.values += 1
        if self.values <= _BEFORE:
            self.worst_before = min(self.worst_before, self.direction * value)
        self._pending.append(bounded(value))
        if len(self._pending) < self._per_mean:
            return
        self._means.append(math.fsum(self._pending) / self._per_mean)
        self._pending = []
        if len(self._means) == _MOST_VALUES:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(a + b) / 2 for a, b in pairs]
            self._per_mean *= 2

    def recent(self) -> list[float]:
        """Return the last quarter of the values, at least one; [] without values."""
        values = [*self._means, *self._pending]
        return values[-max(1, len(values) // 4) :]

    def improving(self) -> bool:
        """Return whether the metric improves steadily, by a tenth of its first values in total.

        Steadiness is the test of Mann and Kendall, which counts the pairs of values in the right
        order: by chance a metric may jump, but not rise steadily.
        """
        sure, first, last = self._trend()
        return sure > _SURE and last - first > _LEAST * abs(first)

    def rose(self) -> bool:
        """Return whether the metric may have improved: it ends above its start, or near its best.

        Unlike `improving`, this suffices for one that improved within a few of its first values.
        """
        values = [self.direction * value for value in self._means]
        if len(values) < _FEWEST:
            return False
        eighth, quarter = max(2, len(values) // 8), max(2, len(values) // 4)
        first = math.fsum(values[:eighth]) / eighth
        last = math.fsum(values[-quarter:]) / quarter
        error = spread(values) * math.sqrt(1 / eighth + 1 / quarter)
        low, high = min(values), max(values)
        return last - first > _SURE * error or low < high - _NEAR_BEST * (high - low) < last

    def worsened(self) -> tuple[float, float] | None:
        """Return the first and last values of a metric that became steadily worse, by half or more.

        Each is a mean over an eighth of the values; None for any other metric.
        """
        sure, first, last = self._trend()
        if not sure < -_VERY_SURE or first - last < _LOST * abs(first):
            return None
        return self.direction * first, self.direction * last

    def stands(self) -> bool:
        """Return whether the last half of the values are equal to the bit."""
        return self.equal >= _SHARE_STANDING * self.values

    def stands_below_start(self) -> bool:
        """Return whether the metric is constant to the bit, and worse than its first values.

        It has been constant for half of its values, 40 or more; all of the first four were better.
        """
        standing = self.stands() and self.equal >= _STANDING
        return standing and self.direction * self.last < self.worst_before

    def _trend(self) -> tuple[float, float, float]:
        """Return the steadiness in standard deviations, and the first and last values.

        Greater is better; all are 0 with few values or an unknown direction.
        """
        values = [self.direction * value for value in self._means]
        count = len(values)
        if not self.direction or count < _FEWEST:
            return 0.0, 0.0, 0.0
        ordered = sum(
            (later > value) - (later < value)
            for place, value in enumerate(values)
            for later in values[place + 1 :]
        )
        deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
        eighth = max(2, count // 8)
        first = math.fsum(values[:eighth]) / eighth
        last = math.fsum(values[-eighth:]) / eighth
        # The correction for continuity.
        sure = math.copysign(max(abs(ordered) - 1, 0), ordered) / deviation
        return sure, first, last
