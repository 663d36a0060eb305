"""Rule: no step has ended for a long time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["StalledTraining"]

_KEPT = 100


class StalledTraining(Rule):
    """Nothing was committed for ``seconds``, and for ``times`` the longest pause of late.

    The longest pause is that between two of the last 100 steps or evaluations. A run that has taken
    all of its steps is left alone.

    It is found while the run is silent (`Rule.idle`). Later it is found again from the times that
    the steps were given, or at which the run ended, with the same words: it says how long the
    silence was at least.

    Args:
        seconds: without a step.
        times: as long as the longest pause before.
    """

    severity = "warning"
    fault = "stalled"
    needs = ()

    def __init__(self, seconds: float = 1800.0, times: float = 3.0) -> None:
        if not seconds > 0:
            raise ConfigError(f"seconds = {seconds:g}: must be greater than 0")
        if not times >= 1:
            raise ConfigError(f"times = {times:g}: must be at least 1")
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
        if self._fired or last is None or self._done(last):
            return None
        longest = max(self._pauses, default=0.0)
        limit = max(self.seconds, self.times * longest)
        if until - last.time <= limit:
            return None
        self._fired = True
        before = f", where the longest pause before was {longest:.3g} s" if longest else ""
        return self.found(
            last,
            since=last.step,
            tensor="",
            statistic="seconds without a step",
            value=limit,
            threshold=limit,
            confidence=0.8,
            seen=f"nothing came for more than {limit:.0f} s after {last.mode} step {last.step}"
            f"{before}",
            cause="the training hangs: data workers that wait for each other, a rank that is gone "
            "and others that wait for it, a store that does not answer; or it does something long",
            remedy="see where it is (py-spy dump --pid PID); if it is in the data loader, try "
            "num_workers=0 and then timeout=60; if it is in a collective, give init_process_group "
            "a timeout and look at the other ranks' output",
            evidence={"longest_pause": longest},
        )

    def _done(self, last: Step) -> bool:
        return self.expected_steps is not None and last.step >= self.expected_steps - 1
