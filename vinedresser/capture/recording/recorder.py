"""Which step or evaluation is going on, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vinedresser.capture.config.capture_config import TIMES, CaptureConfig, Due
from vinedresser.capture.recording.plain_step import PlainStep
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.timing import StepTiming
from vinedresser.errors import ConfigError
from vinedresser.store.step_record import Mode

__all__ = ["Recorder"]


class Recorder:
    """Opens recordings where something is due, and hands them over when they end.

    A train step ends with the optimizer step. An evaluation ends with its ``with`` block, or, where
    the model merely runs in eval mode, when training goes on; what runs in eval mode with gradients
    may be either (`undecided`).

    Args:
        config: what is captured.
        deliver: takes a recording that has ended.
        deliver_plain: takes the number of a train step that has ended, and the numbers captured in
            it, where there is nothing else.

    Attributes:
        config: what is captured.
        adopted: what `reconfigure` has last brought into force.
        adopted_at: the first step to which that applied.
        steps: optimizer steps done.
        explicit_mode: the mode of the ``with`` block we are in, None outside.
        quiet: nothing is due in the train step, and no evaluation or block is open.
        plain: the train step that goes on, while only numbers are due in it and nothing else has
            begun; else None. What is not taken up by it goes to `recording`, which ends it.
        completing: called with a train step that is about to be handed over; with None where it is
            plain and it, or the one before, is not known to have had one forward only.
        timing: measures steps; None where nobody asks for their times.
    """

    def __init__(
        self,
        config: CaptureConfig,
        deliver: Callable[[Recording], object],
        deliver_plain: Callable[[int, dict[str, float]], object],
    ) -> None:
        self.steps = 0
        self.explicit_mode: Mode | None = None
        self.config = config
        self.adopted: CaptureConfig | None = None
        self.adopted_at = 0
        # What comes into force with the next step, and for how many; None: for good.
        self._next: tuple[CaptureConfig, int | None] | None = None
        # The step from which on all is as before, and what that was.
        self._back: tuple[int, CaptureConfig] | None = None
        self._deliver = deliver
        self._deliver_plain = deliver_plain
        self._numbers = PlainStep()
        # The step before may have had several forwards.
        self._several = True
        self._train: Recording | None = None
        self._train_due: Due = config.due(0, "train")
        self._evaluation: Recording | None = None
        # An evaluation is open, whether anything of it is recorded or not.
        self._evaluating = False
        # It may turn out to be training.
        self._undecided = False
        self.quiet = True
        self.plain: PlainStep | None = None
        self.completing: list[Callable[[Recording | None], object]] = []
        self.timing: StepTiming | None = None
        self._look_for_timing()
        self._look_around()

    def configure(self, config: CaptureConfig) -> None:
        """Capture by another config from now on; what was begun goes on with it."""
        self._leave_plain()
        self.config = config
        self._back = None
        self._train_due = config.due(self.steps, "train")
        for begun in (self._train, self._evaluation):
            if begun is not None:
                begun.due = config.due(begun.step, begun.mode)
        if self._undecided and self._evaluation is not None:
            self._evaluation.due = self._due_in_either()
        self._look_around()
        self._look_for_timing()

    def reconfigure(self, config: CaptureConfig, steps: int | None = None) -> None:
        """Capture by another config from the next train step on; any thread may ask for it.

        Args:
            config: what is captured.
            steps: for how many train steps; None: for good.
        """
        self._next = (config, steps)

    @property
    def lasting(self) -> CaptureConfig:
        """What is captured for good: `config`, but while another is in force for some steps."""
        return self.config if self._back is None else self._back[1]

    @property
    def implicit_evaluation(self) -> bool:
        """Whether the model was last seen running in eval mode, outside of a ``with`` block."""
        return self._evaluating and self.explicit_mode is None

    def recording(self, mode: Mode) -> Recording | None:
        """Return what is being recorded in a mode; None where nothing is due.

        A train step or an evaluation is begun where none is going on.
        """
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
            due = self.config.due(self.steps, mode)
            self._evaluation = Recording(mode, self.steps, due) if due else None
        return self._evaluation

    def undecided(self) -> Recording | None:
        """Return what is recorded while nobody knows whether it is training or an evaluation.

        It is an evaluation as long as `claim` does not say otherwise. What is due in either is
        taken, and in the end only what is due in the one that it was.
        """
        if self._undecided:
            return self._evaluation
        self._leave_plain()
        if self._train is not None:
            # It holds what was given by hand already, which must stay where it is.
            return self.recording("eval")
        if self._evaluating:
            self._end_evaluation()
        self._evaluating = self._undecided = True
        self.quiet = False
        due = self._due_in_either()
        self._evaluation = Recording("eval", self.steps, due) if due else None
        return self._evaluation

    def claim(self) -> None:
        """Take what is undecided for a part of the train step that goes on."""
        if not self._undecided:
            return
        recording, self._evaluation = self._evaluation, None
        self._evaluating = self._undecided = False
        if recording is not None and self._train_due and self._train is None:
            recording.mode = "train"
            recording.narrow(self._train_due)
            self._train = recording
        self._look_around()

    def evaluates(self, recording: Recording) -> bool:
        """Say whether this is the evaluation that is going on."""
        return self._evaluation is recording

    def current(self) -> Recording | None:
        """Return the recording that a value given now belongs to; None where nothing is due."""
        if self.explicit_mode is not None:
            return self.recording(self.explicit_mode)
        return self._evaluation if self._evaluating else self.recording("train")

    def current_due(self) -> Due | None:
        """Return what is due in that recording, of which a plain step has no need."""
        if self.plain is not None:
            return self.plain.due
        recording = self.current()
        return None if recording is None else recording.due

    def resume_training(self) -> None:
        """End an evaluation that no ``with`` block holds open."""
        if self._evaluating and self.explicit_mode in (None, "train"):
            self._end_evaluation()

    def forward_begins(self) -> None:
        """See a forward of the training begin."""
        self.resume_training()
        if self.timing is not None:
            self.timing.forward_begins()

    def forget_time(self) -> None:
        """Do not measure the train step that is going on: it is only shown now, not done."""
        if self.timing is not None:
            self.timing.forget()

    def end_train_step(self) -> None:
        """Hand over the train step; the next one begins."""
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
            for complete in self.completing:
                complete(recording)
        self._begin_next()
        if recording is not None:
            self._deliver(recording)
            if timing is not None:
                timing.goes_on()

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        """Be in one mode, whatever the model says, until the block ends.

        Raises:
            ConfigError: such a block is open already.
        """
        if self.explicit_mode is not None:
            raise ConfigError(f"mode({mode!r}) inside mode({self.explicit_mode!r}): end that first")
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
            self._look_around()
            if mode != "train" and self._evaluating:
                self._end_evaluation()
            elif mode != "train" and self.timing is not None:
                self.timing.evaluation_ended()

    def close(self) -> None:
        """Hand over what is still open.

        Of a train step that never ended that is only what the user gave by hand: metrics told after
        the last optimizer step.
        """
        if self._evaluating:
            self._end_evaluation()
        self._leave_plain()
        recording, self._train = self._train, None
        if recording is not None and recording.explicit:
            self._deliver(recording)

    def _end_plain_step(self, plain: PlainStep) -> None:
        """Hand over a train step of numbers alone; the next one begins."""
        if self.timing is not None:
            for name, value in self.timing.figures().items():
                if name in plain.due.times:
                    plain.add(name, value)
            self.timing.step_ended()
        if plain.begun and (plain.several or self._several):
            self._several = plain.several
            for told in self.completing:
                told(None)
        scalars = plain.scalars
        self._begin_next()
        if scalars:
            self._deliver_plain(self.steps - 1, scalars)

    def _begin_next(self) -> None:
        """Begin the next train step."""
        self.steps += 1
        if self._next is not None or self._back is not None:
            self._change_config()
        self._train_due = self.config.due(self.steps, "train")
        self._look_around()

    def _leave_plain(self) -> None:
        """Make a recording of the plain step that goes on, if anything of it was seen."""
        plain, self.plain = self.plain, None
        if plain is not None and plain.begun:
            self._train = Recording("train", self.steps, plain.due)
            self._train.take_over(plain)

    def _change_config(self) -> None:
        """Capture by what was asked for, or again as before when its time is over."""
        if self._next is not None:
            (config, steps), self._next = self._next, None
            self._back = None if steps is None else (self.steps + steps, self.lasting)
            self.config = self.adopted = config
            self.adopted_at = self.steps
        elif self._back is not None and self.steps >= self._back[0]:
            (_, self.config), self._back = self._back, None
        self._look_for_timing()

    def _due_in_either(self) -> Due:
        """Return what is due in this train step or in an evaluation."""
        evaluation = self.config.due(self.steps, "eval")
        return Due(tuple(dict.fromkeys((*evaluation.parts, *self._train_due.parts))))

    def _end_evaluation(self) -> None:
        recording, self._evaluation = self._evaluation, None
        if self._undecided and recording is not None:
            recording.narrow(self.config.due(recording.step, "eval"))
        self._evaluating = self._undecided = False
        self._look_around()
        if recording is not None:
            self._deliver(recording)
        if self.timing is not None:
            self.timing.evaluation_ended()

    def _take_times(self, timing: StepTiming) -> None:
        """Take how long the train step took that ends now."""
        times = timing.figures()
        asked = [name for name in times if name in self._train_due.times]
        recording = self.recording("train") if asked else None
        if recording is not None:
            for name in asked:
                recording.add_scalar(name, times[name])

    def _look_for_timing(self) -> None:
        """Measure steps if anybody asks for that, and else not."""
        wanted = any(map(self.config.holds, TIMES))
        self.timing = (self.timing or StepTiming()) if wanted else None

    def _look_around(self) -> None:
        due = self._train_due
        aside = self._evaluating or self.explicit_mode
        self.quiet = not (due or aside)
        # (coordinator: while nobody takes plain steps yet, there are none)
        if due.plain and self._train is None and not aside:
            self.plain = self._numbers
            self.plain.begin(due)
        else:
            self.plain = None
