"""Which requests are recorded: a share of them, chosen by a hash of their ids."""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

__all__ = ["Sampling", "position"]

_RANGE = float(1 << 64)
# Factor by which the share may grow per second after it fell.
_GROWTH = 1.25
# Seconds after which any share has grown enough; the power of a day is no float.
_LONGEST = 100.0
# Requests by which their cost is judged: the first ones take longest.
_ENOUGH = 20
# Weight of the latest second in the mean cost of a request.
_WEIGHT = 0.3


def position(identity: bytes) -> float:
    """Return the position of an id in [0, 1), uniform over ids and always the same for one id."""
    return int.from_bytes(blake2b(identity, digest_size=8).digest(), "big") / _RANGE


class Sampling:
    """Adapts the share of recorded requests so that two limits hold.

    The share depends on the load of earlier seconds only, and never on a request, so a request is
    recorded with a known probability, whatever it contains.

    Args:
        most: the share without load, from 0 to 1.
        rate: maximum number of recorded requests per second.
        cost: maximum share of the time of one processor core.

    Attributes:
        share: the present share; a request is recorded if its `position` is below.
    """

    def __init__(self, most: float, rate: float, cost: float) -> None:
        self.share = most
        self._most = most
        self._rate = rate
        self._cost = cost
        self._seconds_each: float | None = None
        # Since the cost was last judged: number of recorded requests, and seconds.
        self._recorded, self._busy = 0, 0.0
        # Seconds and requests of the latest updates, at least a second in all.
        self._latest: deque[tuple[float, int]] = deque()

    def update(self, elapsed: float, seen: int, recorded: int, busy: float) -> None:
        """Set the share after some time of work.

        Args:
            elapsed: seconds since the last update.
            seen: number of requests in that time, recorded or not.
            recorded: number of recorded ones.
            busy: seconds of processor time that copying and describing them took, of all threads.
        """
        self._recorded += recorded
        self._busy += busy
        if self._recorded >= _ENOUGH:
            latest = self._busy / self._recorded
            self._recorded, self._busy = 0, 0.0
            before = self._seconds_each
            self._seconds_each = latest if before is None else before + _WEIGHT * (latest - before)
        grown = min(self._most, self.share * _GROWTH ** min(elapsed, _LONGEST))
        seconds, requests = self._load(elapsed, seen)
        if not seen:
            self.share = grown
            return
        allowed = self._rate
        if self._seconds_each:
            allowed = min(allowed, self._cost / self._seconds_each)
        # Limits are per second: a shorter burst may use that of a whole one.
        wanted = min(self._most, allowed * max(seconds, 1.0) / requests)
        self.share = min(wanted, grown) if wanted > self.share else wanted

    def _load(self, elapsed: float, seen: int) -> tuple[float, int]:
        """Return the seconds and requests of the updates that cover the last second."""
        self._latest.append((elapsed, seen))
        seconds = sum(each for each, _ in self._latest)
        while seconds - self._latest[0][0] >= 1.0:
            seconds -= self._latest.popleft()[0]
        return seconds, sum(count for _, count in self._latest)
