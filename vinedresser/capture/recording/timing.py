"""Durations of steps, and of waiting for batches within them."""

from __future__ import annotations

from itertools import zip_longest
from time import perf_counter

from vinedresser.capture.config.capture_config import STAGES, TIMES
from vinedresser.data.delivered import stage_seconds


class StepTiming:
    """Measures steps by the host's clock; a device may still be computing.

    A step lasts from the end of the previous step to its own end, without evaluations in between.
    Within it, the training waits from the end of the previous step, or of a backward with gradient
    accumulation, until the next forward.
    """

    def __init__(self) -> None:
        # Start times; None: unknown or not running.
        self._step_since: float | None = None
        self._waits_since: float | None = None
        self._evaluates_since: float | None = None
        self._forwards_since: float | None = None
        self._waited: float | None = None
        self._evaluated: float | None = None
        self._forwarded: float | None = None
        # Seconds of each stage of data sets before the training, its step, and an evaluation.
        self._stages_before = stage_seconds()
        self._stages_since = self._stages_evaluating = self._stages_before

    def forget(self) -> None:
        """Leave the current step unmeasured."""
        self._step_since = self._waits_since = self._waited = self._evaluated = None
        self._forwards_since = self._forwarded = None

    def forward_begins(self) -> None:
        """Note the start of a training forward."""
        if self._waits_since is not None:
            self._waited = (self._waited or 0.0) + perf_counter() - self._waits_since
            self._waits_since = None

    def model_begins(self) -> None:
        """Note the start of a training forward of the model inside its wrappers, if these wait."""
        self._forwards_since = perf_counter()

    def model_ended(self) -> None:
        """Note its end."""
        if self._forwards_since is not None:
            self._forwarded = (self._forwarded or 0.0) + perf_counter() - self._forwards_since
            self._forwards_since = None

    def update_begins(self) -> None:
        """Note the start of an update: the time until the next forward is more than waiting."""
        self._waits_since = None

    def resumes(self) -> None:
        """Note that the training resumes: it may now wait for a batch.

        Saving a step is not waiting. After a backward, another batch of the step may follow.
        """
        self._waits_since = perf_counter()

    def evaluation_begins(self) -> None:
        """Note the start of an evaluation."""
        if self._evaluates_since is None:
            self._evaluates_since = perf_counter()
            self._stages_evaluating = stage_seconds()

    def evaluation_ended(self) -> None:
        """Note the end of an evaluation."""
        if self._evaluates_since is None:
            return
        took = perf_counter() - self._evaluates_since
        self._evaluates_since = None
        self._evaluated = (self._evaluated or 0.0) + took
        if self._step_since is not None:
            self._step_since += took
        if self._waits_since is not None:
            self._waits_since += took
        spent = _difference(stage_seconds(), self._stages_evaluating)
        self._stages_since = tuple(
            one + more for one, more in zip_longest(self._stages_since, spent, fillvalue=0.0)
        )

    def times(self) -> dict[str, float]:
        """Return the known times in seconds of the step that ends now, by name.

        See `TIMES` and, of data sets that have been used, `STAGES`.
        """
        if self._step_since is None:
            return {}
        step, wait, evaluation, forward = TIMES
        times = {step: perf_counter() - self._step_since}
        if self._waited is not None:
            times[wait] = self._waited
        if self._evaluated is not None:
            times[evaluation] = self._evaluated
        if self._forwarded is not None:
            times[forward] = self._forwarded
        if total := stage_seconds():
            spent = _difference(total, self._stages_since)
            ever = _difference(total, self._stages_before)
            used = zip(STAGES, spent, ever, strict=True)
            times.update((name, seconds) for name, seconds, whole in used if whole)
        return times

    def step_ended(self) -> None:
        """Note the end of a step."""
        self._step_since = self._waits_since = perf_counter()
        self._waited = self._evaluated = self._forwarded = None
        self._stages_since = stage_seconds()


def _difference(now: tuple[float, ...], before: tuple[float, ...]) -> tuple[float, ...]:
    """Return what was spent since; () is nothing yet."""
    return tuple(one - other for one, other in zip_longest(now, before, fillvalue=0.0))
