"""Rule: no step has been completed for a long time."""

from __future__ import annotations

from collections import deque

from vinedresser.rules.base import Rule
from vinedresser.rules.bounds import require_above, require_at_least
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

_KEPT = 100


class StalledTraining(Rule):
    """No step was committed for ``seconds``, and for ``times`` the longest recent pause.

    The longest pause is measured between the last 100 steps or evaluations. A run that has
    completed all its steps is ignored.

    The rule fires while the run is silent (`Rule.idle`). When the run is judged again, it fires
    with the same text, based on the times of the steps or the end of the run: it reports the
    minimum length of the silence.

    Args:
        seconds: seconds without a step.
        times: multiple of the longest previous pause.
    """

    severity = "warning"
    fault = "stalled"
    position = 490
    predecessors = ("stalled_training_rule",)

    def __init__(self, seconds: float = 1800.0, times: float = 3.0) -> None:
        require_above(0, seconds=seconds)
        require_at_least(1, times=times)
        self.seconds = seconds
        self.times = times
        self._last: Step | None = None
        self._pauses: deque[float] = deque(maxlen=_KEPT)
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._last is None:
            self._last = step
        elif step.time > self._last.time:
            self._pauses.append(step.time - self._last.time)
            self._last = step
        return None

    def idle(self, until: float) -> Finding | None:
        """See `Rule.idle`."""
        last = self._last
        if self._fired or last is None:
            return None
        if self.expected_steps is not None and last.step >= self.expected_steps - 1:
            return None
        longest = max(self._pauses, default=0.0)
        limit = max(self.seconds, self.times * longest)
        if until - last.time <= limit:
            return None
        self._fired = True
        before = f" (longest previous pause: {longest:.3g} s)" if longest else ""
        return self.found(
            last,
            since=last.step,
            tensor="",
            statistic="seconds without a step",
            value=limit,
            threshold=limit,
            confidence=0.8,
            seen=f"no data for more than {limit:.0f} s after {last.mode} step {last.step}{before}",
            cause="the training hangs: a deadlock between data workers, a lost rank that others "
            "wait for, a store that does not respond; or it performs a long operation",
            remedy="find out where it hangs (py-spy dump --pid PID); in the data loader, try "
            "num_workers=0 and then timeout=60; in a collective, pass a timeout to "
            "init_process_group and inspect the output of the other ranks",
            evidence={"longest_pause": longest},
        )
