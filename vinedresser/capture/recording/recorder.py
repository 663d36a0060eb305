"""The current train step or evaluation: opening and delivering its recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from vinedresser.capture.config.asked import Asked
from vinedresser.capture.config.capture_config import TIMES, CaptureConfig, Due
from vinedresser.capture.recording.budget import CaptureBudget
from vinedresser.capture.recording.evaluated_rows import EvaluatedRows
from vinedresser.capture.recording.recording import PlainStep, Recording
from vinedresser.capture.recording.timing import StepTiming
from vinedresser.data.delivered import BatchInUse
from vinedresser.errors import ConfigError
from vinedresser.store.step_record import Mode


class Recorder:
    """Opens a recording if anything is due, and delivers it at its end.

    A train step ends with the optimizer step. An evaluation ends with its ``with`` block or, if the
    model merely runs in eval mode, when training resumes; a forward in eval mode with gradients may
    be either (`undecided`).

    Args:
        config: collections to capture.
        deliver: called with each finished recording.
        deliver_plain: called with the number of a finished train step and its scalars by name, if
            nothing else was captured in it.
        budget: keeps the captures that rules need within a share of the time; None: no limit.

    Attributes:
        adopted: the config that `reconfigure` put into effect last.
        adopted_at: first step of `adopted`.
        steps: number of finished optimizer steps.
        explicit_mode: mode of the enclosing ``with`` block, or None.
        quiet: nothing is due in the train step, and no evaluation or block is open.
        plain: current train step while only numbers are due in it and nothing else has begun, else
            None. `recording` replaces it by a full recording.
        completing: callbacks that receive each train step's recording before its delivery, or None
            if the step is plain and it or the previous step may have had several forwards.
        timing: measures steps; None if no collection holds their times.
        observer: asks the training for clients; None: nobody may ask.
        batch: the batch of a data set that the current forward uses.
    """

    def __init__(
        self,
        config: CaptureConfig,
        deliver: Callable[[Recording], object],
        deliver_plain: Callable[[int, dict[str, float]], object],
        budget: CaptureBudget | None = None,
    ) -> None:
        self.steps = 0
        self._budget = budget
        self.explicit_mode: Mode | None = None
        self.config = config
        self.adopted: CaptureConfig | None = None
        self.adopted_at = 0
        # The config that takes effect with the next step, and its number of steps; None: no limit.
        self._next: tuple[CaptureConfig, int | None] | None = None
        # The step at which the previous config takes effect again, and that config.
        self._back: tuple[int, CaptureConfig] | None = None
        self._deliver = deliver
        self._deliver_plain = deliver_plain
        self._numbers = PlainStep()
        # The previous step may have had several forwards.
        self._several = True
        self.observer: _Observer | None = None
        self._train: Recording | None = None
        self._train_due: Due = self.train_due(0)
        self._evaluation: Recording | None = None
        self._rows = EvaluatedRows()
        # An evaluation is open, recorded or not.
        self._evaluating = False
        # The open evaluation may turn out to be training.
        self._undecided = False
        self.quiet = True
        self.plain: PlainStep | None = None
        self.completing: list[Callable[[Recording | None], object]] = []
        self.timing: StepTiming | None = None
        self.batch = BatchInUse()
        self._update_timing()
        self._update_plain()

    def configure(self, config: CaptureConfig) -> None:
        """Switch to another config at once, also for open recordings."""
        self._leave_plain()
        self.config = config
        self._back = None
        self._train_due = self._extended(self.train_due(self.steps), "train")
        for begun in (self._train, self._evaluation):
            if begun is not None:
                train = begun is self._train
                due = config.due(begun.step, begun.mode)
                begun.due = self._train_due if train else self._extended(due, begun.mode)
        if self._undecided and self._evaluation is not None:
            self._evaluation.due = self._due_in_either()
        self._update_plain()
        self._update_timing()

    def reconfigure(self, config: CaptureConfig, steps: int | None = None) -> None:
        """Switch to another config with the next train step; callable from any thread.

        Args:
            config: collections to capture.
            steps: number of train steps until the present config returns; None: no limit.
        """
        self._next = (config, steps)

    @property
    def lasting(self) -> CaptureConfig:
        """The config without a time limit: `config`, unless that is limited to some steps."""
        return self.config if self._back is None else self._back[1]

    @property
    def implicit_evaluation(self) -> bool:
        """Whether an evaluation without a ``with`` block is open."""
        return self._evaluating and self.explicit_mode is None

    def train_due(self, step: int) -> Due:
        """Return what is due in a train step, as far as is known now."""
        due = self.config.due(step, "train")
        if self._budget is None or not due.elastic:
            return due
        pace = self._budget.pace_at(step)
        return due if pace == 1 else self.config.due(step, "train", pace)

    def recording(self, mode: Mode) -> Recording | None:
        """Return the open recording of a mode, opening one if needed; None if nothing is due."""
        if self.plain is not None:
            self._leave_plain()
        if mode == "train":
            if self._train is None and self._train_due:
                self._train = Recording("train", self.steps, self._train_due)
            return self._train
        if not self._evaluating:
            self._evaluating = True
            self.quiet = False
            if self.timing is not None:
                self.timing.evaluation_begins()
            due = self._extended(self.config.due(self.steps, mode), mode)
            self._evaluation = Recording(mode, self.steps, due) if due else None
        return self._evaluation

    def evaluates_rows(self, *, of_training: bool) -> None:
        """Note whether the next forward of an evaluation has rows of the training."""
        begun = self._evaluating and not self._undecided
        self._evaluation = self._rows.next(self._evaluation, of_training=of_training, begun=begun)

    def undecided(self) -> Recording | None:
        """Return the recording of forwards that may be training or an evaluation.

        It is an evaluation unless `claim` is called. It takes what is due in either mode, and in
        the end keeps what is due in the actual one.
        """
        if self._undecided:
            return self._evaluation
        self._leave_plain()
        if self._train is not None:
            # It already holds values that the user saved.
            return self.recording("eval")
        if self._evaluating:
            self._end_evaluation()
        self._evaluating = self._undecided = True
        self.quiet = False
        due = self._due_in_either()
        self._evaluation = Recording("eval", self.steps, due) if due else None
        return self._evaluation

    def claim(self) -> None:
        """Make the undecided recording the current train step's."""
        if not self._undecided:
            return
        recording, self._evaluation = self._evaluation, None
        self._evaluating = self._undecided = False
        if recording is not None and self._train_due and self._train is None:
            recording.mode = "train"
            recording.narrow(self._train_due)
            self._train = recording
        self._update_plain()

    def evaluates(self, recording: Recording) -> bool:
        """Return whether a recording is the open evaluation."""
        return self._evaluation is recording

    def is_open(self, recording: Recording) -> bool:
        """Return whether a recording is that of the current train step or evaluation."""
        return recording is self._train or recording is self._evaluation

    def current(self) -> Recording | None:
        """Return the recording for values saved now; None if nothing is due."""
        if self.explicit_mode is not None:
            return self.recording(self.explicit_mode)
        if self._evaluating:
            return self._evaluation or self._rows.aside
        return self.recording("train")

    def current_due(self) -> Due | None:
        """Return what is due for values saved now, without ending a plain step."""
        if self.plain is not None:
            return self.plain.due
        recording = self.current()
        return None if recording is None else recording.due

    def comparisons_due(self) -> bool:
        """Return whether predictions or labels are due now."""
        due = None if self.quiet or self.plain is not None else self.current_due()
        return due is not None and (due.reaches("predictions") or due.reaches("labels"))

    def resume_training(self, *, certain: bool = False) -> None:
        """End an evaluation without a ``with`` block; certain: not one that may be training."""
        undecided = certain and self._undecided
        if self._evaluating and not undecided and self.explicit_mode in (None, "train"):
            self._end_evaluation()

    def forward_begins(self) -> None:
        """Note the start of a training forward."""
        self.resume_training()
        if self.timing is not None:
            self.timing.forward_begins()

    def end_train_step(self, *, past: bool = False) -> None:
        """Deliver the train step and begin the next one; call `completing` unless it is past."""
        if self.plain is not None:
            self._end_plain_step(self.plain)
            return
        timing = self.timing
        if timing is not None:
            if self._train_due:
                self._take_times(timing)
            timing.step_ended()
        recording, self._train = self._train, None
        if recording is not None:
            self._several = True
            for complete in [] if past else self.completing:
                complete(recording)
        if self._budget is not None:
            self._budget.step_ended(self.steps, self._train_due.stored)
        if self.observer is not None:
            self.observer.train_step_ended(self.steps, recording)
            _end_asking(recording)
        self._begin_next()
        if recording is not None:
            self._deliver(recording)
            if timing is not None:
                timing.resumes()

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        """Set the mode for a block, regardless of the model's mode.

        Raises:
            ConfigError: another block is open.
        """
        if self.explicit_mode is not None:
            raise ConfigError(f"mode({mode!r}): blocks cannot be nested in {self.explicit_mode!r}")
        self._leave_plain()
        if mode != "train":
            self.resume_training()
            if self.timing is not None:
                self.timing.evaluation_begins()
        self.explicit_mode = mode
        self.quiet = False
        try:
            yield
        finally:
            self.explicit_mode = None
            self._update_plain()
            if mode != "train" and self._evaluating:
                self._end_evaluation()
            elif mode != "train" and self.timing is not None:
                self.timing.evaluation_ended()

    def close(self) -> None:
        """Deliver the open recordings.

        An unfinished train step is delivered only if the user saved values in it, such as metrics
        after the last optimizer step.
        """
        if self._evaluating:
            self._end_evaluation()
        self._leave_plain()
        recording, self._train = self._train, None
        if recording is not None and recording.explicit:
            _end_asking(recording)
            self._deliver(recording)

    def _end_plain_step(self, plain: PlainStep) -> None:
        """Deliver a plain train step and begin the next one."""
        if self.timing is not None:
            for name, value in self.timing.times().items():
                if name in plain.due.times:
                    plain.add(name, value)
            self.timing.step_ended()
        if plain.begun and (plain.several or self._several):
            self._several = plain.several
            for complete in self.completing:
                complete(None)
        scalars = plain.scalars
        if self.observer is not None:
            self.observer.train_step_ended(self.steps, plain)
            plain.live = {}
            stored = plain.due.stored
            if stored is not plain.due:
                scalars = {name: one for name, one in scalars.items() if stored.ask(name)}
        self._begin_next()
        if scalars:
            self._deliver_plain(self.steps - 1, scalars)

    def _begin_next(self) -> None:
        """Begin the next train step."""
        self.steps += 1
        if self._next is not None or self._back is not None:
            self._change_config()
        self._train_due = self._extended(self.train_due(self.steps), "train")
        self._update_plain()

    def _extended(self, due: Due, mode: Mode) -> Due:
        """Return what is due, and what standing queries read."""
        if self.observer is None:
            return due
        asked = self.observer.asked(mode)
        if asked is None:
            return due
        if self.timing is None and asked.holds(TIMES[0]):
            self.timing = StepTiming()
        return due.joined(asked)

    def _leave_plain(self) -> None:
        """Replace the plain step by a recording if it has begun."""
        plain, self.plain = self.plain, None
        if plain is not None and plain.begun:
            self._train = Recording("train", self.steps, plain.due)
            self._train.take_over(plain)

    def _change_config(self) -> None:
        """Adopt the requested config, or return to the previous one when its time is over."""
        if self._next is not None:
            (config, steps), self._next = self._next, None
            self._back = None if steps is None else (self.steps + steps, self.lasting)
            self.config = self.adopted = config
            self.adopted_at = self.steps
        elif self._back is not None and self.steps >= self._back[0]:
            (_, self.config), self._back = self._back, None
        self._update_timing()

    def _due_in_either(self) -> Due:
        """Return what is due in this train step or in an evaluation now."""
        evaluation = self.config.due(self.steps, "eval")
        parts = tuple(dict.fromkeys((*evaluation.parts, *self._train_due.stored.parts)))
        return Due(parts, asked=self._train_due.asked)

    def _end_evaluation(self) -> None:
        recording = self._evaluation or self._rows.aside
        self._evaluation = None
        self._rows.end()
        if self._undecided and recording is not None:
            recording.narrow(self.config.due(recording.step, "eval"))
        self._evaluating = self._undecided = False
        if self.observer is not None:
            self.observer.evaluation_ended(self.steps, recording)
            _end_asking(recording)
        self._update_plain()
        if recording is not None:
            self._deliver(recording)
        if self.timing is not None:
            self.timing.evaluation_ended()

    def _take_times(self, timing: StepTiming) -> None:
        """Record the times of the train step that ends now."""
        times = timing.times()
        asked = [name for name in times if name in self._train_due.times]
        recording = self.recording("train") if asked else None
        if recording is not None:
            for name in asked:
                recording.add_scalar(name, times[name])

    def _update_timing(self) -> None:
        """Measure steps only if a collection holds their times."""
        wanted = any(map(self.config.holds, TIMES))
        self.timing = (self.timing or StepTiming()) if wanted else None

    def _update_plain(self) -> None:
        """Update `quiet` and `plain`."""
        due = self._train_due
        if self._budget is not None:
            self._budget.measure(due.stored)
        aside = self._evaluating or self.explicit_mode
        self.quiet = not (due or aside)
        if due.plain and self._train is None and not aside:
            self.plain = self._numbers
            self.plain.begin(due)
        else:
            self.plain = None


def _end_asking(recording: Recording | None) -> None:
    """Drop what was captured for standing queries only."""
    if recording is not None and recording.due.asked is not None:
        recording.live.clear()
        recording.hide_what_is_only_asked()


class _Observer(Protocol):
    """Answers standing queries on the training's thread.

    No method raises an error.
    """

    def asked(self, mode: Mode) -> Asked | None:
        """Return what is read in the train step or evaluation that begins; None: nothing."""

    def train_step_ended(self, step: int, found: Recording | PlainStep | None) -> None:
        """Answer at the end of a train step.

        Args:
            step: number of the step.
            found: what was captured in it; None: nothing.
        """

    def evaluation_ended(self, step: int, found: Recording | None) -> None:
        """Answer at the end of an evaluation; see `train_step_ended`."""
