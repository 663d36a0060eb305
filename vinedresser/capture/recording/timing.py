"""How long steps take, and how much of that is waiting for the next batch."""

from __future__ import annotations

from time import perf_counter

from vinedresser.capture.config.capture_config import TIMES

__all__ = ["StepTiming"]


class StepTiming:
    """Measures steps by the host's clock; what a device still computes goes on beside that.

    A step lasts from the end of the one before to its own end, evaluations in between left out.
    Within it, the training waits from the end of the step before, or, with gradient accumulation,
    of a backward, until the next forward begins.
    """

    def __init__(self) -> None:
        # Since when; None: it is not known, or not so.
        self._step_since: float | None = None
        self._waits_since: float | None = None
        self._evaluates_since: float | None = None
        self._waited: float | None = None
        self._evaluated: float | None = None

    def forget(self) -> None:
        """Let the next step begin at an unknown time, so that it is not measured."""
        self._step_since = self._waits_since = self._waited = self._evaluated = None

    def forward_begins(self) -> None:
        """See a forward of the training begin."""
        if self._waits_since is not None:
            self._waited = (self._waited or 0.0) + perf_counter() - self._waits_since
            self._waits_since = None

    def update_begins(self) -> None:
        """See an update begin: what comes before the next forward is more than waiting."""
        self._waits_since = None

    def goes_on(self) -> None:
        """See the training go on after a step that was saved, which is no waiting either."""
        self._waits_since = perf_counter()

    def backward_ended(self) -> None:
        """See a backward end; what comes next may be another batch of the same step."""
        self._waits_since = perf_counter()

    def evaluation_begins(self) -> None:
        """See an evaluation begin."""
        if self._evaluates_since is None:
            self._evaluates_since = perf_counter()

    def evaluation_ended(self) -> None:
        """See an evaluation end."""
        if self._evaluates_since is None:
            return
        took = perf_counter() - self._evaluates_since
        self._evaluates_since = None
        self._evaluated = (self._evaluated or 0.0) + took
        if self._step_since is not None:
            self._step_since += took
        if self._waits_since is not None:
            self._waits_since += took

    def figures(self) -> dict[str, float]:
        """Return the times of a step that ends now in seconds, as far as known, by their names."""
        if self._step_since is None:
            return {}
        step, wait, evaluation = TIMES
        figures = {step: perf_counter() - self._step_since}
        if self._waited is not None:
            figures[wait] = self._waited
        if self._evaluated is not None:
            figures[evaluation] = self._evaluated
        return figures

    def step_ended(self) -> None:
        """See a step end."""
        self._step_since = self._waits_since = perf_counter()
        self._waited = self._evaluated = None
