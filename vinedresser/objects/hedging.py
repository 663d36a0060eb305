"""Second requests for reads that take much longer than others of this process."""

from __future__ import annotations

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import lru_cache
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeAlias

import numpy as np

__all__ = ["Hedge", "hedge"]

# Reads of about a size that are remembered, and the minimum number to judge by.
_REMEMBERED, _ENOUGH = 200, 40
# A read is slow if it takes this many times as long as all but 5 % of the others, in seconds at
# least `_LEAST`.
_QUANTILE, _TIMES, _LEAST = 0.95, 3.0, 0.05
# Maximum share of reads that get a second request.
_SHARE = 0.05

_Tasks: TypeAlias = "SimpleQueue[tuple[Callable[[], bytes], Future[bytes]]]"


class Hedge:
    """Repeats reads that are slow; the first answer counts.

    Dean and Barroso, The tail at scale (2013).

    Attributes:
        reads: number of reads.
        repeated: number of them that got a second request.
    """

    def __init__(self) -> None:
        self.reads = 0
        self.repeated = 0
        self._lock = Lock()
        # Seconds of the latest reads, by the number of bits of their size.
        self._seconds: defaultdict[int, deque[float]] = defaultdict(
            lambda: deque(maxlen=_REMEMBERED)
        )
        self._slow: dict[int, float] = {}
        # Threads without work; a new one for each read would take a tenth of its processor time.
        self._idle: deque[_Tasks] = deque()

    def read(self, read: Callable[[], bytes], size: int) -> bytes:
        """Return what a read returns; if it is slow, what a second one returns that is faster.

        Args:
            read: reads; called again in another thread, at most once.
            size: number of bytes.
        """
        kind = size.bit_length()
        begun = time.perf_counter()
        slow = self._slow.get(kind)
        content = read() if slow is None else self._first(read, slow)
        self._note(kind, time.perf_counter() - begun)
        return content

    def _first(self, read: Callable[[], bytes], slow: float) -> bytes:
        first = self._started(read)
        done, _ = wait([first], slow)
        if done or not self._may_repeat():
            return first.result()
        both = [first, self._started(read)]
        done, missing = wait(both, return_when=FIRST_COMPLETED)
        succeeded = [one for one in done if one.exception() is None] or [*missing, *done]
        return succeeded[0].result()

    def _started(self, read: Callable[[], bytes]) -> Future[bytes]:
        """Begin a read in a thread for which the end of the process does not wait."""
        future: Future[bytes] = Future()
        try:
            tasks = self._idle.pop()
        except IndexError:
            tasks = SimpleQueue()
            Thread(target=self._work, args=(tasks,), name="read", daemon=True).start()
        tasks.put((read, future))
        return future

    def _work(self, tasks: _Tasks) -> None:
        while True:
            _answer(*tasks.get())
            self._idle.append(tasks)

    def _may_repeat(self) -> bool:
        with self._lock:
            allowed = self.repeated + 1 <= _SHARE * self.reads
            self.repeated += allowed
        return allowed

    def _note(self, kind: int, seconds: float) -> None:
        with self._lock:
            self.reads += 1
            known = self._seconds[kind]
            known.append(seconds)
            # The quantile of hundreds of values costs as much as a small read.
            if len(known) >= _ENOUGH and self.reads % (_ENOUGH // 4) == 0:
                typical = float(np.quantile(known, _QUANTILE))
                self._slow[kind] = max(_TIMES * typical, _LEAST)


def hedge() -> Hedge:
    """Return the hedge of this process."""
    return _hedge(os.getpid())


@lru_cache(maxsize=1)
def _hedge(_pid: int) -> Hedge:
    return Hedge()


def _answer(read: Callable[[], bytes], future: Future[bytes]) -> None:
    try:
        content = read()
    except Exception as error:  # noqa: BLE001 (the reader raises it)
        future.set_exception(error)
    else:
        future.set_result(content)
