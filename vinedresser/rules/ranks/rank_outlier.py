"""Rule: the loss or the gradient norm of one rank leaves that of the others."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinedresser.rules.bounds import require_above
from vinedresser.rules.need import Need
from vinedresser.rules.ranks.aligned import Aligned, RankRule
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

_BLOCK = 50
# Samples of gradients in a block.
_SAMPLES = 25
_SAMPLED = r"^ranks/(?:.*\.)?local_gradients$"
# Difference of two means in units of its standard error; healthy blocks stay below 4.
_FAR = 6.0
# Blocks in which the ranks agree within this ratio before one can leave.
_AGREED, _AGREES = 2, 1.25


@dataclass
class _Block:
    """The losses or gradient norms of one rank in a block of steps."""

    values: list[float]

    @property
    @np.errstate(all="ignore")
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    @np.errstate(all="ignore")
    def error(self) -> float:
        """The variance of their mean."""
        return float(np.var(self.values)) / len(self.values)


class RankOutlier(RankRule):
    """The loss or gradient norm of one rank leaves that of the others, which it resembled before.

    All data-parallel ranks have the same weights, so their losses differ by their rows only.
    Compares the means of the losses of all ranks in blocks of 50 steps. Fires when the ranks agreed
    in two blocks, and in ``patience`` consecutive ones the mean of a rank is ``ratio`` times that
    of the others' median (or the inverse), by more than six standard errors. Of two ranks, the one
    that moved away from where both were is named. Losses that are not positive are ignored.

    In the same way, compares the norms of the ranks' gradients before any reduction, at up to 512
    elements, in blocks of 25 of them, while all losses agree.

    Silent about ranks whose losses differ from the start: their data may.

    Args:
        ratio: minimum ratio of the losses or norms.
        patience: number of consecutive blocks.
        every: train steps between samples of gradients.
    """

    fault = "rank_data"
    position = 464
    left_out_of = ("boosted_trees", "adversarial")

    def __init__(self, ratio: float = 1.5, patience: int = 2, every: int = 20) -> None:
        require_above(1, ratio=ratio)
        super().__init__(patience, every)
        self.needs = (
            Need("losses", required=False),
            Need("rank_gradient_norms", every, rarer_from=0, regex=_SAMPLED, required=False),
        )
        self._gradient_block = _SAMPLES * every
        self.ratio = ratio
        self._blocks: defaultdict[str, Aligned[_Block]] = defaultdict(Aligned)
        self._open: dict[tuple[str, int], _Block] = {}
        # By name: number of blocks in which all ranks agreed, and the mean in the latest of them.
        self._agreed: dict[str, tuple[int, float]] = {}
        # By name: the rank that has left, the first step, and the number of blocks.
        self._left: dict[str, tuple[int, int, int]] = {}

    def is_due(self, step: Step) -> bool:
        """See `RankRule.is_due`: here, losses are compared at each step."""
        return self.world > 1 and step.mode == "train"

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`: here, of all ranks."""
        for name, value in {**step.scalars_of("losses"), **_norms(step)}.items():
            block = self._open.setdefault((name, step.rank), _Block([]))
            block.values.append(value)
        for name in [name for name, rank in self._open if rank == step.rank]:
            if (step.step + 1) % self._length(name):
                continue
            block = self._open.pop((name, step.rank))
            ranks = self._blocks[name].add(step, block, self.world)
            finding = None if ranks is None else self._look(step, name, ranks)
            if finding is not None:
                return finding
        return None

    def _look(self, step: Step, name: str, ranks: Sequence[_Block]) -> Finding | None:
        means = [one.mean for one in ranks]
        if not all(math.isfinite(mean) and mean > 0 for mean in means):
            self._agreed.pop(name, None)
            return None
        count, usual = self._agreed.get(name, (0, 0.0))
        if max(means) <= _AGREES * min(means):
            self._agreed[name] = count + 1, float(np.median(means))
            self._left.pop(name, None)
            return None
        # The block in which they part holds steps before that, too.
        known, since, blocks = self._left.get(name, (-1, step.step - self._length(name) + 1, 0))
        settled = count >= _AGREED and (not _is_norm(name) or self._losses_agree())
        rank = _farthest(means, usual) if settled else -1
        far = rank >= 0 and self._is_far(rank, ranks)
        blocks = blocks + 1 if far and rank == known else int(far)
        self._left[name] = rank, since, blocks
        if blocks < self.patience:
            return None
        return self._finding(step, name, rank, means, since)

    def _is_far(self, rank: int, ranks: Sequence[_Block]) -> bool:
        one, others = ranks[rank], [*ranks[:rank], *ranks[rank + 1 :]]
        middle = sorted(others, key=lambda other: other.mean)[len(others) // 2]
        error = math.sqrt(one.error + middle.error)
        apart = max(one.mean, middle.mean) > self.ratio * min(one.mean, middle.mean)
        return apart and abs(one.mean - middle.mean) > _FAR * error

    def _finding(
        self, step: Step, name: str, rank: int, means: Sequence[float], since: int
    ) -> Finding:
        rest = float(np.median([one for place, one in enumerate(means) if place != rank]))
        norm = _is_norm(name)
        what = "the norm of sampled gradients before the reduction" if norm else name
        cause = (
            "from the same loss, this rank computes another gradient: it scales its loss, or sums "
            "the gradients of several steps; or its machine computes wrongly"
            if norm
            else "the rows of this rank differ from those of the others (damaged, shifted, "
            "labelled otherwise or not shuffled), or its machine computes wrongly"
        )
        look = "where the script treats" if norm else "at the inputs and labels of"
        return self.found(
            step,
            since=since,
            rank=rank,
            tensor=name,
            statistic="ratio to the other ranks",
            value=means[rank] / rest,
            threshold=self.ratio,
            confidence=0.7,
            seen=f"{what} of rank {rank} is {means[rank]:.3g}, that of the others {rest:.3g}, "
            f"since step {since}; before, they agreed" + norm * ", and their losses still do",
            cause=cause,
            remedy=f"look {look} rank {rank} from step {since} on; if they are like those of the "
            "others, run the rank on another machine",
            evidence={"kind": "norm" if norm else "loss", "means": list(means)},
            fault="gradient_reduction" if norm else None,
        )

    def _length(self, name: str) -> int:
        """Return the number of steps in a block."""
        return self._gradient_block if _is_norm(name) else _BLOCK

    def _losses_agree(self) -> bool:
        """Return whether all losses are known to agree in the latest block."""
        losses = [name for name in self._blocks if not _is_norm(name)]
        agreed = [self._agreed.get(name, (0, 0.0))[0] >= _AGREED for name in losses]
        return bool(losses) and all(agreed) and self._left.keys().isdisjoint(losses)


def _is_norm(name: str) -> bool:
    return name.startswith("ranks/")


def _norms(step: Step) -> dict[str, float]:
    """Return the norm of the rank's own gradient of each model, as far as it is in the step."""
    names = [name for name in step.tensor_names if re.search(_SAMPLED, name)]
    return {name: float(np.linalg.norm(step.tensor(name))) for name in names}


def _farthest(means: Sequence[float], usual: float) -> int:
    """Return the rank whose mean is farthest from where all ranks were, by its ratio."""
    return max(range(len(means)), key=lambda rank: abs(math.log(means[rank] / usual)))
