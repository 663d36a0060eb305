"""Rule: data-parallel replicas no longer have the same weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from vinedresser.rules.advice import Advice
from vinedresser.rules.applicability import ONE_PROCESS, Reasons
from vinedresser.rules.base import Rule
from vinedresser.rules.bounds import require_at_least
from vinedresser.rules.need import Need, optional_statistics
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Maximum number of steps with missing ranks.
_MOST_OPEN = 16
# Factor of the patience if all parameters differ: weights may be averaged now and then.
_LONGER = 3
_REDUCED = re.compile(r"^state/(?:.*\.)?reduced$")

_Prints = dict[str, float]


class ReplicaDivergence(Rule):
    """A weight or bias differs between ranks.

    The rule compares CRC-32C fingerprints of the parameters of all ranks at the same step. All
    ranks add the same reduced gradient to the same weights, so not a single bit may differ. Fires
    when a parameter that was equal on all ranks differs at ``patience`` consecutive checks; if all
    parameters differ, at three times as many.

    A parameter that differs at the first check is treated as a shard, and a model with shards is
    not compared. A parameter that becomes equal again belongs to a training that averages its
    weights now and then; it is not compared from then on. Disable the rule for such a training if
    averages and checks fall on different steps.

    Neither happens if `DistributedDataParallel` reduces the gradients of all models over all ranks
    (``state/reduced``, PyTorch): ``patience`` checks are enough then, and parameters may not differ
    at the first check either.

    Args:
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "replica_divergence"
    position = 460
    inapplicable = Reasons(keras=ONE_PROCESS, xgboost=ONE_PROCESS, sklearn=ONE_PROCESS)
    left_out_of = ("boosted_trees",)

    def __init__(self, every: int = 100, patience: int = 2) -> None:
        require_at_least(1, patience=patience)
        self.every = every
        self.patience = patience
        self.needs = (
            *optional_statistics(every, weights=("fingerprint",), biases=("fingerprint",)),
            Need("state", every=every, required=False),
        )
        self._world = 1
        # Fingerprints of steps with missing ranks, by step and rank.
        self._open: dict[int, dict[int, _Prints]] = {}
        self._known: set[str] = set()
        # Steps at which a parameter differed.
        self._differ: dict[str, list[int]] = {}
        self._off = False

    def begin(self, info: RunRecord) -> None:
        """Read the number of ranks."""
        self._world = info.world_size

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._off or self._world < 2 or step.mode != "train" or step.step % self.every:
            return None
        prints = {
            **step.reduction_of("weights", "fingerprint"),
            **step.reduction_of("biases", "fingerprint"),
        }
        if not prints:
            return None
        ranks = self._open.setdefault(step.step, {})
        ranks[step.rank] = prints
        if len(ranks) < self._world:
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]
            return None
        del self._open[step.step]
        reduced = [value for name, value in step.scalars.items() if _REDUCED.match(name)]
        return self._compare(step, ranks, reduced=bool(reduced) and all(reduced))

    def _compare(
        self, step: Step, ranks: Mapping[int, _Prints], *, reduced: bool
    ) -> Finding | None:
        common = set.intersection(*(set(prints) for prints in ranks.values()))
        names = [name for name in ranks[0] if name in common]
        unlike = [name for name in names if len({one[name] for one in ranks.values()}) > 1]
        sharded = any(name not in self._known for name in unlike)
        again = any(name in self._differ for name in names if name not in unlike)
        if (sharded and not reduced) or again:
            self._off = True
            return None
        self._known.update(names)
        for name in unlike:
            self._differ.setdefault(name, []).append(step.step)
        # In model order.
        averaged = len(unlike) == len(names) and not reduced
        needed = self.patience * (_LONGER if averaged else 1)
        sure = [name for name in unlike if len(self._differ[name]) >= needed]
        if not sure:
            return None
        self._off = True
        first = min(self._differ[name][0] for name in sure)
        whole = len(sure) == len(names)
        advice = _advice(sure[0], since=first, whole=whole, wrapped=reduced)
        return self._finding(step, first, sure, ranks, advice)

    def _finding(
        self,
        step: Step,
        since: int,
        unlike: list[str],
        ranks: Mapping[int, _Prints],
        advice: Advice,
    ) -> Finding:
        name = next(one for one in unlike if self._differ[one][0] == since)
        prints = {rank: int(ranks[rank][name]) for rank in sorted(ranks)}
        odd = _odd_ranks(prints)
        who = f"rank {', '.join(map(str, odd))} differs" if odd else "the ranks differ"
        since_when = f"step {since} (equal at step {since - self.every})" if since else "the start"
        more = f", and {len(unlike) - 1} other tensors too" if len(unlike) > 1 else ""
        return self.found(
            step,
            since=since,
            tensor=name,
            statistic="fingerprint",
            value=float(len(unlike)),
            threshold=0.0,
            confidence=0.95,
            seen=f"{name}: {who} since {since_when}{more}; {len(ranks[0])} tensors compared",
            cause=advice.cause,
            remedy=advice.remedy,
            evidence={
                "fingerprints": {str(rank): value for rank, value in prints.items()},
                "tensors": unlike[:50],
            },
        )


def _advice(name: str, *, since: int, whole: bool, wrapped: bool) -> Advice:
    """Return the cause and the remedy.

    Args:
        name: first parameter that differs.
        since: first step with a difference.
        whole: whether all parameters differ.
        wrapped: whether `DistributedDataParallel` should reduce the gradients.
    """
    if not whole:
        return Advice(
            "this tensor was changed on one rank only: by code that runs on some ranks, by "
            "loading another checkpoint, or by a memory fault",
            f"find the code that writes {name} on some ranks only; broadcast it from rank 0 "
            f"(torch.distributed.broadcast), or restart from the checkpoint before step {since}",
        )
    if not wrapped:
        return Advice(
            "gradients are not reduced over the ranks: the model is called without its "
            "DistributedDataParallel wrapper, or always within no_sync",
            "call the wrapped model instead of model.module, and step after a backward pass "
            f"outside no_sync; restart from the checkpoint before step {since}",
        )
    if since == 0:
        return Advice(
            "each rank initialised or loaded its weights after DistributedDataParallel had made "
            "them equal",
            "initialise and load weights before wrapping the model, or load the same file on all "
            "ranks",
        )
    return Advice(
        "DistributedDataParallel does not reduce the gradients: its hooks were lost when the "
        "parameters were replaced after wrapping, such as by model.double(), .half() or .to(), or "
        "each rank updates its weights differently",
        "change the type, device and parameters of the model first, then wrap it; restart from "
        "the first step",
    )


def _odd_ranks(prints: Mapping[int, int]) -> list[int]:
    """Return the ranks that differ from the majority; [] if there is none."""
    (usual, count), *_ = Counter(prints.values()).most_common(1)
    if 2 * count <= len(prints):
        return []
    return [rank for rank, value in prints.items() if value != usual]
