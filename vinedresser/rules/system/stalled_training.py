"""Rule: no step has been completed for a long time."""

from __future__ import annotations

from vinedresser.rules.base import Rule
from vinedresser.rules.bounds import require_above, require_at_least
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

_HANGS = (
    "the training hangs: a deadlock between data workers, a lost rank that others wait for, a "
    "store that does not respond; or it performs a long operation"
)
_FIND = (
    "find out where it hangs (py-spy dump --pid PID); in the data loader, try num_workers=0 and "
    "then timeout=60; in a collective, pass a timeout to init_process_group and inspect the output "
    "of the other ranks"
)


class StalledTraining(Rule):
    """No step was committed for ``seconds``, and for ``times`` the longest pause of this kind.

    Pauses after train steps and after evaluations are learned apart, from the whole run: a pause
    for a checkpoint may come every thousand steps.

    The rule fires while the run is silent (`Rule.idle`). When the run is judged again, it fires
    with the same text, based on the times of the steps or the end of the run: it reports the
    minimum length of the silence. Before the first step and after the last one, what takes long is
    unknown: its findings, whose evidence has the "section" "start" or "end", then need
    confirmation (`vinedresser.rules.judge`).

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
        # The longest pause after a step of each mode.
        self._longest: dict[str, float] = {}
        self._fired = False

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        last = self._last
        if last is None:
            self._last, self._fired = step, False
        elif step.time > last.time:
            pause = step.time - last.time
            self._longest[last.mode] = max(pause, self._longest.get(last.mode, 0.0))
            self._last = step
        return None

    def before_first(self, since: float, until: float) -> Finding | None:
        """See `Rule.before_first`."""
        if self._fired or until - since <= self.seconds:
            return None
        self._fired = True
        seen = f"no step has ended {self.seconds:.0f} s after the start"
        return self._stall(None, "start", since, self.seconds, seen)

    def idle(self, until: float) -> Finding | None:
        """See `Rule.idle`."""
        last = self._last
        if self._fired or last is None:
            return None
        longest = self._longest.get(last.mode, 0.0)
        limit = max(self.seconds, self.times * longest)
        if until - last.time <= limit:
            return None
        self._fired = True
        if self.expected_steps is not None and last.step >= self.expected_steps - 1:
            seen = f"all {self.expected_steps:,} steps are done, but the run has not ended"
            seen = f"{seen} for more than {limit:.0f} s"
            return self._stall(last, "end", last.time, limit, seen)
        before = f" (longest previous pause: {longest:.3g} s)" if longest else ""
        seen = f"no data for more than {limit:.0f} s after {last.mode} step {last.step}{before}"
        return self._stall(last, "step", last.time, limit, seen, longest=longest)

    def _stall(
        self,
        last: Step | None,
        section: str,
        silent_since: float,
        limit: float,
        seen: str,
        *,
        longest: float = 0.0,
    ) -> Finding:
        return self.found(
            last,
            since=last.step if last else 0,
            tensor="",
            statistic="seconds without a step",
            value=limit,
            threshold=limit,
            confidence=0.8,
            seen=seen,
            cause=_HANGS,
            remedy=_FIND,
            evidence={
                "longest_pause": longest,
                "section": section,
                "silent_since": silent_since,
                "expected_steps": self.expected_steps,
            },
        )
