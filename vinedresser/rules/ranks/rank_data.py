"""Rule: ranks are fed the same data, or unequal amounts of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from vinedresser.rules.need import Need
from vinedresser.rules.patience import Patience
from vinedresser.rules.ranks.aligned import Aligned, RankRule, told
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_CAPTURED = r"^ranks/(?:.*\.)?(data_parallel|inputs|random|rows)$"
_FACT = re.compile(_CAPTURED)
# Checks with equal rows before an unequal batch is an exception, not the rule.
_USUAL = 2


class _Fed(NamedTuple):
    """What a rank was fed up to a step.

    Attributes:
        inputs: fingerprints of the inputs of the models, by their full names.
        random: CRC of the states of torch's generators before the step; None: not known.
        rows: rows of all training forwards so far; None: not known.
        parallel: whether each rank trains the same model with its own part of the data.
    """

    inputs: tuple[tuple[str, float], ...]
    random: float | None
    rows: float | None
    parallel: bool
    step: int


class RankData(RankRule):
    """Data-parallel ranks are fed the same data, or unequal amounts of it.

    Compares fingerprints of the model's inputs, the states of torch's random generators and the
    numbers of rows of all ranks, in trainings with `DistributedDataParallel` or `fully_shard` over
    all ranks. Fires when, at ``patience`` consecutive checks, between which the inputs change,

    - ranks have the same inputs: they compute the same gradient, and the rows of the other ranks
      are missed (a warning). If their random states are the same, too, the cause is a seed, or a
      checkpoint whose random state all ranks have loaded; otherwise a sampler without the rank;
    - ranks have the same random state, after these differed: the state of one rank was loaded by
      all (info; inputs and dropout masks may repeat).

    Also fires if ranks had equally many rows at each of the first checks, but one of them missed
    some later, as at the end of an epoch: the mean over ranks then weights its rows more (info).

    Silent about the first two if the script draws the same numbers on all ranks by intention, as
    with one seed for all ranks and a `DistributedSampler`: inputs differ then.

    Args:
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "rank_data"
    stage = "data"
    position = 463

    def __init__(self, every: int = 50, patience: int = 2) -> None:
        super().__init__(patience, every)
        self.needs = (Need("rank_data", every, rarer_from=0, regex=_CAPTURED, required=False),)
        self._fed = Aligned[_Fed]()
        self._before: list[_Fed] = []
        self._loaded = False
        # Of checks with the same inputs, and with the same random states.
        self._same, self._drawn = Patience(patience), Patience(patience)
        # Random states have differed.
        self._differed = False
        self._even = 0

    def begin(self, info: RunRecord) -> None:
        """Read the number of ranks, and whether a state was loaded."""
        super().begin(info)
        self._loaded = info.loaded

    def on_record(self, info: RunRecord) -> None:
        """Read whether a state was loaded."""
        self._loaded = info.loaded

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`: here, of all ranks."""
        now = self._fed.add(step, _fed(step), self.world)
        if now is None or not all(one.parallel for one in now):
            return None
        found = self._same_inputs(step, now) or self._same_random(step, now)
        found = found or self._unequal_rows(step, now)
        self._before = now
        return found

    def _fault(
        self, step: Step, kind: str, fact: str, ranks: Sequence[int], since: int, **told: Any
    ) -> Finding:
        """Return the finding of a kind of fault of some ranks, which shows in a fact."""
        return self.found(
            step,
            since=since,
            rank=ranks[0],
            tensor=f"ranks/{fact}",
            statistic=kind,
            value=float(len(ranks)),
            threshold=1.0,
            confidence=0.9,
            evidence={"kind": kind, "ranks": list(ranks)},
            **told,
        )

    def _same_inputs(self, step: Step, now: Sequence[_Fed]) -> Finding | None:
        same = _equal([one.inputs or None for one in now])
        moves = not self._before or self._before[0].inputs != now[0].inputs
        if not self._same.add(now[0].step, seen=bool(same) and moves):
            return None
        seen = f"{told(same)} are fed the same inputs since step {self._same.since}"
        if not set(same) <= set(_equal([one.random for one in now])):
            return self._fault(
                *(step, "same_inputs", "inputs", same, self._same.since),
                seen=f"{seen}, with different random states",
                cause="the sampler does not know the rank, or all ranks read the same files",
                remedy="give each rank its own rows: DataLoader(sampler=DistributedSampler("
                "dataset)), or an IterableDataset every world_size-th sample, beginning with its "
                "rank",
            )
        return self._fault(
            *(step, "same_inputs_and_random_state", "inputs", same, self._same.since),
            seen=f"{seen}, and have the same random state",
            cause="a checkpoint of one rank was loaded by all, with its random state"
            if self._loaded
            else "the ranks have the same seed and draw their data or its order from it, or all "
            "have loaded the random state of one",
            remedy="save and load the random state of each rank, or seed with seed + rank; for "
            "workers, DataLoader(generator=…) with such a seed; rows that are drawn without random "
            "numbers need a DistributedSampler",
        )

    def _same_random(self, step: Step, now: Sequence[_Fed]) -> Finding | None:
        same = _equal([one.random for one in now])
        if len(same) < len(now):
            self._differed |= all(one.random is not None for one in now)
        shared = self._differed and len(same) == len(now)
        if not self._drawn.add(now[0].step, seen=shared):
            return None
        return self._fault(
            *(step, "random_state_shared", "random", same, self._drawn.since),
            seen=f"{told(same)} have the same random state since step {self._drawn.since}, and "
            "did not before",
            cause="all ranks have loaded the random state of one, as from a checkpoint, or were "
            "seeded alike: dropout masks, noise and the order of data repeat on all ranks",
            remedy="save and load the random state of each rank, or seed again with seed + rank",
            severity="info",
        )

    def _unequal_rows(self, step: Step, now: Sequence[_Fed]) -> Finding | None:
        rows = [one.rows for one in now]
        before = [one.rows for one in self._before]
        counts = [one for one in (*rows, *before) if one is not None]
        if len(counts) < 2 * len(now):
            return None
        new = [a - b for a, b in zip(counts[: len(now)], counts[len(now) :], strict=True)]
        if len(set(new)) == 1:
            self._even += 1
            return None
        usual, self._even = self._even >= _USUAL, -(10**9)
        if not usual:
            # Batches of varying size on all ranks, as of a fixed number of tokens.
            return None
        least = tuple(rank for rank, one in enumerate(new) if one == min(new))
        missing = max(new) - min(new)
        return self._fault(
            *(step, "unequal_rows", "rows", least, self._before[0].step + 1),
            seen=f"{told(least)} had {missing:.0f} rows less than others between the steps "
            f"{self._before[0].step} and {now[0].step}, and as many before",
            cause="a batch of that rank is smaller, as the last one of an epoch: the mean over the "
            "ranks weights its rows more",
            remedy="DataLoader(drop_last=True), or DistributedSampler(drop_last=True)",
            severity="info",
        )


def _fed(step: Step) -> _Fed:
    inputs: list[tuple[str, float]] = []
    facts: dict[str, float] = {}
    for name, value in step.scalars.items():
        found = _FACT.match(name)
        if found and found[1] == "inputs":
            inputs.append((name, value))
        elif found:
            facts[found[1]] = min(value, facts.get(found[1], value))
    return _Fed(
        tuple(sorted(inputs)),
        facts.get("random"),
        facts.get("rows"),
        bool(facts.get("data_parallel")),
        step.step,
    )


def _equal(values: Sequence[object]) -> tuple[int, ...]:
    """Return the ranks of the first value, other than None, that several ranks have."""
    for value in values:
        ranks = tuple(rank for rank, one in enumerate(values) if one == value)
        if value is not None and len(ranks) > 1:
            return ranks
    return ()
