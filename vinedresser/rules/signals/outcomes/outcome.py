"""Whether a training learns as it should, which decides whether symptoms count.

Gradients may fade and units may die in a training that learns well; published detectors that ignore
the outcome raise alarms in a third to two thirds of healthy trainings.
"""

from __future__ import annotations

import math

from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.losses.loss_progress import Stretch
from vinedresser.rules.signals.losses.moving_targets import MovingTargets
from vinedresser.rules.signals.outcomes.baseline import Baseline
from vinedresser.rules.signals.outcomes.chance import (
    FEWEST_WINDOWS,
    classes_at_chance,
    values_at_chance,
)
from vinedresser.rules.signals.outcomes.fit import Fit, FitSeries, Gain
from vinedresser.rules.signals.outcomes.gain_windows import projected, stand_below, windows_of
from vinedresser.rules.signals.outcomes.guessing import Guessing
from vinedresser.rules.signals.outcomes.learning_outcome import (
    LEAST_SHARE,
    Guessed,
    LearningOutcome,
)
from vinedresser.rules.signals.outcomes.mixed_baseline import MixedBaseline
from vinedresser.rules.signals.outcomes.verdict import Verdict, gain_in_words
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["HORIZON", "PLATEAU", "Outcome"]

_SURE = 2.0
# Shares of the gain of simple models that are good and poor.
_GOOD_SHARE = 0.8
_POOR_SHARE = 0.5
# Minimum gain of a baseline, and the gain of one that has found nothing.
_LEAST_BASELINE, _NOTHING = 0.1, 0.02
# The same for rows of integers or of several inputs: models that hardly read them tell nothing.
_LEAST_MIXED = 0.2
# Good gain and good fall of the loss without a baseline.
_GOOD_GAIN = 0.25
_GOOD_FALL = 0.3
# Without a baseline, a model that removes less of the error of guessing and `LEAST_SHARE` of its
# loss has learned nothing.
_LEAST_GAIN = 0.1
# A loss of tokens that has fallen by more in the last steps is still coming down to guessing.
_LEAST_FALL = 0.05
# With more classes, labels are not those of a critic or a discriminator, which are its own.
_FEW_CLASSES = 2
# Minimum windows of samples of an outcome far behind simple models at the end.
_FEWEST_AT_END = 2
# Minimum train steps of a poor outcome, and minimum share of the run if its length is known. A run
# of unknown length gets more steps: it may be long, and on a plateau.
_PATIENCE = 150
_PATIENCE_UNKNOWN = 400
_SHARE = 0.4
# Share of a run in which the loss may stand on a plateau before learning (Barak et al., "Hidden
# progress in deep learning", NeurIPS 2022); with sparse parities it stood until 0.46. In a run of
# unknown length, only the end is sure to be behind it.
PLATEAU = 0.5
# Ratio to the loss of guessing that is far from anything learned, at the end of a run: of classes,
# and of values, whose predictions are then ten standard deviations of the labels away from them.
_FAR_CLASSES, _FAR_VALUES = 4.0, 100.0
# Share of a run after which captured predictions are those of its end, even if the loss falls.
_LATE = 0.8
# Assumed ratio of total to past steps in a run of unknown length.
HORIZON = 4.0


class Outcome(Signal):
    """The outcome of a training, judged by its predictions, losses and metrics.

    If predictions and labels were captured, their gain (`Fit`) is compared with that of simple
    models fitted to rows of the training (`Baseline`). The outcome is good at four fifths of the
    baseline. It is poor below half of the baseline if the trend of the last windows leaves it below
    until the end of the run (of unknown length: until four times the past steps). If the baseline
    finds nothing either, or the rows are tokens, or the labels are three classes or more, it is
    poor if the model does not beat guessing: neither its gain nor its loss, on the same trend.
    Without baseline or labels, losses and metrics decide (`LearningOutcome`). If these are good, a
    function that is only a part of the loss (`Fit.parts`) does not count. At the end, the outcome
    is also poor if all reported metrics of known meaning are those of guessing (`metric_scale`),
    the return of a policy has become steadily worse, or all losses are far above those of guessing
    (4 times for classes, 100 times for values), and the predictions are not good.
    """

    def __init__(self) -> None:
        self.fit = Fit()
        self.baseline = Baseline()
        self.mixed = MixedBaseline()
        self.guessing = Guessing()
        self.moving = MovingTargets()
        self.progress = LearningOutcome(200, 0.1)
        self._step = 0
        self._total: int | None = None
        # Whether the rows are tokens.
        self._text = False
        # Whether all inputs are integers, such as tokens and ids.
        self._ids = False
        self._chooses = False
        # Whether the weights were loaded, so that they may be trained already.
        self._loaded = False
        self._verdict: Verdict | None = None

    def begin(self, info: RunRecord) -> None:
        """Read the expected number of steps."""
        self._total = info.total_steps

    def on_record(self, info: RunRecord) -> None:
        """See `Signal.on_record`."""
        self._chooses = info.chooses_actions
        self._loaded = info.loaded

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        if step.rank == 0 and step.mode == "train":
            self._step = step.step
            self._verdict = None
            self._text |= self.baseline.batches.of_text
            inputs = self.baseline.batches.inputs.values()
            self._ids |= bool(inputs) and all(one.dtype.kind in "iu" for one in inputs)

    def verdict(self) -> Verdict:
        """Return the verdict at the current step."""
        if self._verdict is None:
            self._verdict = self._judged(ended=False)
        return self._verdict

    def final(self) -> Verdict:
        """Return the verdict on a training that is over."""
        return self._judged(ended=True)

    def nothing_learned(self) -> bool:
        """Return whether the training has certainly learned little so far.

        All tasks with a baseline are far behind it; without any, no loss has fallen by a tenth and
        no metric improves.
        """
        if any(self.simple(loss) is not None for loss in self.tasks()):
            return self.behind()
        progress = self.progress
        known = bool(progress.losses) and not progress.adversaries
        return known and not progress.learned(_LEAST_GAIN) and progress.improving_metric() is None

    def simple(self, loss: str) -> float | None:
        """Return the gain of simple models on the rows of a loss; None if it is unknown."""
        gain, mixed = self.baseline.gain(loss), self.mixed.gain(loss)
        return mixed if gain is None and (mixed or 0.0) >= _LEAST_MIXED else gain

    def is_late(self, loss: str, gain: Gain) -> bool:
        """Return whether a loss's gain is that of the end: captures may end with their budget."""
        if gain.step >= _LATE * self._step:
            return True
        progress = self.progress.losses.get(f"losses/{loss}")
        still = progress is not None and progress.fallen(self._step - gain.step) < _LEAST_FALL
        return still and gain.step >= PLATEAU * self._step

    def behind(self) -> bool:
        """Return whether all tasks with a baseline are far behind it now, and there is one."""
        wanted = [
            (gain, baseline)
            for loss, series in self.tasks().items()
            if (gain := series.gain()) and (baseline := self.simple(loss) or 0.0) >= _LEAST_BASELINE
        ]
        return bool(wanted) and all(gain.most < _POOR_SHARE * baseline for gain, baseline in wanted)

    def tasks(self) -> dict[str, FitSeries]:
        """Return the series that tell the outcome, by name of the loss."""
        parts = self.fit.parts("train")
        if parts and self._of_losses(ended=False).kind == "good":
            parts = {}
        return {**self.fit.of("train"), **parts}

    def _judged(self, *, ended: bool) -> Verdict:
        tasks = self.tasks()
        verdicts = [self._of_fit(loss, series, ended=ended) for loss, series in tasks.items()]
        if len(tasks) == 1 and verdicts == [None]:
            ((loss, series),) = tasks.items()
            verdicts = [self._of_guessing(loss, series, ended=ended)]
        found = [verdict for verdict in verdicts if verdict is not None]
        for kind in ("good", "open", "poor"):
            # One learned task is enough: other losses may be auxiliary.
            for verdict in found:
                if verdict.kind == kind != "open":
                    return verdict
        guessed = self.guessed() if ended else None
        if guessed is not None:
            return Verdict("poor", guessed.words)
        worse = self._worse_than_guessing(list(tasks)) if ended else ""
        if worse:
            return Verdict("poor", worse)
        losses = self._of_losses(ended=ended)
        if found and losses.kind == "good":
            # The loss falls, but the predictions are not good.
            return Verdict("open")
        return losses

    def guessed(self) -> Guessed | None:
        """Return a reported metric whose last values are those of guessing; None without one.

        That includes the return of a policy that has become worse than the untrained policy.
        """
        return self.progress.guessed(self._classes()) or self.progress.worse_return()

    def opposite(self) -> Guessed | None:
        """Return a reported metric that shows that the opposite is learned; None without one."""
        return self.progress.opposite(self._classes())

    def frozen(self) -> Guessed | None:
        """Return a number of the evaluations that never changes while a loss falls, or None."""
        return self.progress.frozen(self._classes())

    def unmoved(self) -> str:
        """Return which reported metrics leave open whether anything was learned; "" if none do.

        That includes the return of a policy, whatever its losses do. Other metrics are not asked if
        the predictions are good, and none if weights were loaded, which may have been trained.
        """
        if self._loaded or self._step < _PATIENCE:
            return ""
        fits = [self._of_fit(loss, one, ended=True) for loss, one in self.tasks().items()]
        good = any(verdict is not None and verdict.kind == "good" for verdict in fits)
        words = self.progress.unmoved_return()
        return words if words or good else self.progress.barely_moved(self._classes())

    def at_chance(self) -> str:
        """Return in words that nothing was learned by the end of the run; "" if something was.

        For runs whose outcome is not poor: without known rows, nobody knows whether there is
        something to learn, and a loss also falls from wild first outputs to that of guessing. All
        classifications are as wrong as guessing, with the loss of guessing or, if that is not
        known, a loss that has not fallen; numbers are as far away as their mean
        (`values_at_chance`); no other loss has fallen, no metric improves or is better than that of
        guessing.
        """
        progress, tasks = self.progress, {**self.fit.of("train"), **self.fit.parts("train")}
        if self._step < _PATIENCE or self._chooses or progress.adversaries or not tasks:
            return ""
        others = set(progress.losses) - {f"losses/{loss}" for loss in tasks}
        if any(progress.losses[name].learned(_LEAST_GAIN) for name in others):
            return ""
        if progress.improving_metric() or progress.better_than_guessing(self._classes()):
            return ""
        if not all(self._is_guessed(loss, series) for loss, series in tasks.items()):
            return ""
        return ", ".join(
            f"{loss} is {now.level:.3g} at the end{self._of_mean(loss, series)}, "
            f"{gain_in_words(series, gain, None)}"
            for loss, series in tasks.items()
            if (now := self._latest(loss)) and (gain := series.gain())
        )

    def _of_mean(self, loss: str, series: FitSeries) -> str:
        """Return the loss of guessing numbers, in words; "" for classes."""
        guessed = self.guessing.loss(loss) if series.task == "values" else None
        return f" (the best constant gives {guessed:.3g})" if guessed else ""

    def _is_guessed(self, loss: str, series: FitSeries) -> bool:
        """Return whether what a loss compares is certainly predicted no better than by chance."""
        guessed, now = self.guessing.loss(loss), self._latest(loss)
        if now is None:
            return False
        learned = self.progress.losses[f"losses/{loss}"].learned(_LEAST_GAIN)
        if series.task == "values":
            simple, growth = self.baseline.gain(loss), self.moving.growth(loss)
            if simple is not None and simple > _NOTHING:
                return False
            heart = simple is not None and self.baseline.repeated
            return values_at_chance(
                series, now, guessed, growth=growth, by_heart=heart, learned=learned
            )
        # Two classes may be those of a critic, but no generator makes ids.
        known = self._ids or _of_several_classes(series)
        return known and classes_at_chance(series, now, guessed, learned=learned)

    def _classes(self) -> int:
        """Return the number of classes among the labels; 0 if it is not known."""
        tasks = list(self.fit.of("train").values())
        if len(tasks) != 1 or tasks[0].task not in ("classes", "binary"):
            return 0
        return int((tasks[0].counts > 0).sum())

    def _of_losses(self, *, ended: bool) -> Verdict:
        progress = self.progress
        if metric := progress.improving_metric():
            return Verdict("good", f"{metric} improves")
        if progress.learned(_GOOD_FALL):
            return Verdict("good", "the loss has fallen")
        if not progress.losses:
            return Verdict("open")
        if progress.nowhere(1.0):
            name, one = next(iter(progress.losses.items()))
            now = one.latest()
            level = now.level if now else one.first
            # A loss that was thrown up is not on a plateau.
            stands = not any(loss.thrown_up() for loss in progress.losses.values())
            if stands and self._loaded:
                return Verdict("open")
            early = not ended and self._before_half()
            reason = f"{name} went from {one.start()[0]:.4g} to {level:.4g}"
            return Verdict("poor", reason, stands and early)
        return Verdict("open")

    def _of_fit(self, loss: str, series: FitSeries, *, ended: bool) -> Verdict | None:
        """Return the verdict by the predictions of one loss; None if they do not decide."""
        gain = series.gain()
        if gain is None:
            return None
        baseline = self.simple(loss)
        if baseline is None or baseline < _LEAST_BASELINE:
            good = gain.least > _GOOD_GAIN
            return Verdict("good", gain_in_words(series, gain, None)) if good else None
        words = gain_in_words(series, gain, baseline)
        if gain.value - gain.error > _GOOD_SHARE * baseline:
            return Verdict("good", words)
        poor = _POOR_SHARE * baseline
        windows = windows_of(series)
        surely = gain.most < poor and len(windows) >= FEWEST_WINDOWS
        over = ended and self.is_late(loss, gain)
        hopeless = surely and (over or self._without_hope(windows, poor))
        # A short run that was learning had too few steps, or ended early.
        short = ended and self._is_whole() and len(windows) == _FEWEST_AT_END
        if hopeless or (short and stand_below(poor, *windows)):
            return Verdict("poor", words)
        return Verdict("open", words)

    def _is_whole(self) -> bool:
        """Return whether the run has as many steps as were expected, as far as is known."""
        return self._total is None or self._step + 1 >= self._total

    def _of_guessing(self, loss: str, series: FitSeries, *, ended: bool) -> Verdict | None:
        """Return the verdict on predictions that are no better than guessing, or None."""
        gain, windows = series.gain(), windows_of(series)
        if gain is None or len(windows) < FEWEST_WINDOWS or self.progress.adversaries:
            return None
        # The rows must be known: a critic's or a discriminator's labels are its own.
        known = self.baseline.gain(loss) is not None or self._text
        if not known and (self._chooses or not _of_several_classes(series)):
            return None
        if gain.most > _LEAST_GAIN or not self._at_chance(loss):
            return None
        if not ended and not self._without_hope(windows, _LEAST_GAIN):
            return None
        if self._text and self._falls_to_guessing(loss):
            return None
        early = not ended and self._before_half()
        return Verdict("poor", gain_in_words(series, gain, None), early)

    def _worse_than_guessing(self, losses: list[str]) -> str:
        """Return how far all losses are above those of guessing, in words; "" if any is not.

        Margins, label smoothing and large temperatures raise a loss, too, but not as far; nor does
        that of an agent, whose targets may hardly differ.

        Args:
            losses: names of the losses with labels and predictions.
        """
        progress = self.progress
        if self._step < _PATIENCE or self._chooses or progress.adversaries:
            return ""
        if progress.improving_metric():
            return ""
        words = []
        for loss in losses:
            guessed, now = self.guessing.loss(loss), self._latest(loss)
            if not guessed or now is None:
                return ""
            classes = self.fit.of("train")[loss].identity.loss.endswith("cross_entropy")
            if now.level - _SURE * now.error < (_FAR_CLASSES if classes else _FAR_VALUES) * guessed:
                return ""
            words.append(f"{loss} is {now.level:.3g} where guessing gives {guessed:.3g}")
        return ", ".join(words)

    def _before_half(self) -> bool:
        """Return whether the first half of the run may not be over."""
        return self._step < PLATEAU * (self._total or math.inf)

    def _at_chance(self, loss: str) -> bool:
        """Return whether a loss is certainly no better than that of guessing."""
        guessed, now = self.guessing.loss(loss), self._latest(loss)
        if guessed is None or now is None:
            return False
        return now.level - _SURE * now.error > (1 - LEAST_SHARE) * guessed

    def _falls_to_guessing(self, loss: str) -> bool:
        """Return whether a loss has come down to that of guessing only now, or not even yet."""
        # A language model learns the frequencies of the tokens first.
        progress = self.progress.losses.get(f"losses/{loss}")
        if progress is None or progress.thrown_up():
            return False
        return progress.fallen(_PATIENCE) > _LEAST_FALL

    def _latest(self, loss: str) -> Stretch | None:
        """Return the last steps of a loss; None if there are too few."""
        progress = self.progress.losses.get(f"losses/{loss}")
        return progress.latest() if progress else None

    def _without_hope(self, windows: list[Gain], poor: float) -> bool:
        """Return whether the trend of the last windows leaves the gain poor until the end."""
        least = max(_PATIENCE, _SHARE * self._total) if self._total else _PATIENCE_UNKNOWN
        if self._step < least:
            return False
        end = max(self._total or HORIZON * self._step, self._step)
        return projected(windows, end) < poor


def _of_several_classes(series: FitSeries) -> bool:
    """Return whether each label is one of several classes that occur."""
    return series.task == "classes" and int((series.counts > 0).sum()) > _FEW_CLASSES
