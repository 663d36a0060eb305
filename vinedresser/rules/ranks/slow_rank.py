"""Rule: the other ranks wait for one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.bounds import require_above, require_between
from vinedresser.rules.need import Need
from vinedresser.rules.patience import Patience
from vinedresser.rules.ranks.aligned import Aligned, RankRule, told
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

_BLOCK = 50
# Caches fill, kernels are compiled and workers start in the first steps.
_WARM_UP = 20
_SECTIONS = {
    "wait": "between its steps: loading data, or other work of the loop",
    "forward": "in the forward pass: a slower or busier machine, or longer rows",
}


class _Times(NamedTuple):
    """Means of one rank in a block of steps, in seconds.

    Attributes:
        step: duration of a step; nearly the same on all ranks, which wait for each other.
        wait: time between a step and the next forward.
        forward: time of the forward; NaN if it is not known.
    """

    step: float
    wait: float
    forward: float

    @property
    def own(self) -> float:
        """What the rank does before it can wait for others."""
        return self.wait + (0.0 if math.isnan(self.forward) else self.forward)


class SlowRank(RankRule):
    """One rank makes the others wait, and which part of its step does.

    Ranks that reduce their gradients end each step together; the fast ones wait in the backward
    pass. What a rank does before is its own: the time between two steps (``timing/wait``) and the
    forward pass of the model inside `DistributedDataParallel` (``timing/forward``). In blocks of 50
    steps, let o_r be the sum of the means of both on rank r, and t the mean duration of a step.
    Fires when (max o_r - median of the others) / t > ``share``, and the difference is more than
    ``seconds``, of the same rank in ``patience`` consecutive blocks, without the first 20 steps.

    Silent about a rank that is slow in its backward pass only, since the waiting for others is part
    of it. Times are the host's: on a GPU, a slow device shows where the host waits for it.

    Args:
        share: minimum share of the time that the other ranks wait.
        seconds: minimum waiting time per step, in seconds.
        patience: number of consecutive blocks.
    """

    fault = "slow_rank"
    position = 472
    needs = (Need("timing", required=False),)

    def __init__(self, share: float = 0.2, seconds: float = 0.005, patience: int = 3) -> None:
        require_between(0, 1, share=share)
        require_above(0, seconds=seconds)
        super().__init__(patience)
        self.share = share
        self.seconds = seconds
        self._blocks = Aligned[_Times]()
        # The steps of the open block of each rank: step, wait and forward.
        self._open: dict[int, list[tuple[float, float, float]]] = {}
        self._slow = Patience(patience)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`: here, of all ranks."""
        if step.step < _WARM_UP:
            return None
        times = [
            step.scalars.get(f"timing/{word}", math.nan) for word in ("step", "wait", "forward")
        ]
        rows = self._open.setdefault(step.rank, [])
        if not math.isnan(times[0] + times[1]):
            rows.append((times[0], times[1], times[2]))
        if step.step % _BLOCK != _BLOCK - 1:
            return None
        del self._open[step.rank]
        if len(rows) < _BLOCK // 2:
            return None
        ranks = self._blocks.add(step, _means(np.array(rows)), self.world)
        return None if ranks is None else self._look(step, ranks)

    def _look(self, step: Step, ranks: Sequence[_Times]) -> Finding | None:
        own = [one.own for one in ranks]
        rank = int(np.argmax(own))
        others = [one for place, one in enumerate(ranks) if place != rank]
        lost = own[rank] - _middle(others, "own")
        took = _middle(ranks, "step")
        slow = lost >= self.seconds and lost >= self.share * took > 0
        first = max(step.step - _BLOCK + 1, _WARM_UP)
        if not self._slow.add(first, seen=slow, kind=rank):
            return None
        return self._finding(step, rank, ranks, lost)

    def _finding(self, step: Step, rank: int, ranks: Sequence[_Times], lost: float) -> Finding:
        others = [one for place, one in enumerate(ranks) if place != rank]
        took = _middle(ranks, "step")
        more = {word: getattr(ranks[rank], word) - _middle(others, word) for word in _SECTIONS}
        section = max(more, key=lambda word: -math.inf if math.isnan(more[word]) else more[word])
        who = told([rank])
        if section == "wait":
            remedy = (
                f"give {who} as many workers and cores, and as much data, as the others; do "
                "logging, checkpoints and evaluations of one rank less often or in the background"
            )
        else:
            remedy = (
                f"compare the machine of {who} with the others (clock, temperature, other "
                "processes), and the lengths of its rows"
            )
        return self.found(
            step,
            since=self._slow.since,
            rank=rank,
            tensor=f"timing/{section}",
            statistic="share of the step",
            value=lost / took,
            threshold=self.share,
            confidence=0.8,
            seen=f"the other ranks wait {1e3 * lost:.3g} ms of {1e3 * took:.3g} ms per step for "
            f"{who} ({lost / took:.0%} of the time, since step {self._slow.since}), which spends "
            f"{1e3 * more[section]:.3g} ms more {_SECTIONS[section]}",
            cause=f"{who} is slower {_SECTIONS[section]}",
            remedy=remedy,
            evidence={"section": section, "ranks": [one._asdict() for one in ranks]},
        )


def _middle(ranks: Sequence[_Times], word: str) -> float:
    return float(np.median([getattr(rank, word) for rank in ranks]))


def _means(rows: NDArray[np.float64]) -> _Times:
    step, wait, forward = np.mean(rows, axis=0)
    return _Times(float(step), float(wait), float(forward))
