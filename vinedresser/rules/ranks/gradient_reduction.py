"""Rule: gradients are reduced over the ranks in a wrong or wasteful way."""

from __future__ import annotations

import functools
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.rules.need import Need
from vinedresser.rules.patience import Patience
from vinedresser.rules.ranks.aligned import Aligned, RankRule, told
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Step from which on checks are rarer.
_EARLY = 150
_CAPTURED = (
    r"^ranks/(?:.*\.)?(?:local_gradients|gradients|objective|divisor|passes|reducing_passes)$"
)
_NAME = re.compile(r"^ranks/((?:.*\.)?)gradients$")
# Largest residual of a gradient that is a sum of the ranks' gradients, in units of its norm, and
# the largest difference between equal factors; float32 sums are exact to about 1e-6.
_EXACT = 1e-3
# Fewer sampled elements per rank say little.
_FEWEST = 8
_Vector = NDArray[np.float64]


class _Sample(NamedTuple):
    """The gradient of a model on one rank, at the sampled elements; float64 [n] each.

    Attributes:
        local: of this rank's own rows.
        consumed: as the optimizer consumes it.
        passes: number of backward passes in the step.
        reducing: number of those that reduced the gradients of all parameters over all ranks.
        mean: whether the backward pass began with a loss that is a mean over the rank's own rows.
        divisor: of such a loss, the only one, before the backward pass; NaN if there is none.
    """

    local: _Vector
    consumed: _Vector
    passes: float
    reducing: float
    mean: bool
    divisor: float


@dataclass(frozen=True)
class _Fault:
    kind: str
    seen: str
    cause: str
    remedy: str
    value: float
    threshold: float
    confidence: float
    ranks: tuple[int, ...] = ()
    hint: bool = False


class GradientReduction(RankRule):
    """The optimizer's gradient is not the mean of the ranks' gradients, or is reduced too often.

    Let g_r be the gradient of rank r before any reduction, and G that which the optimizer consumes,
    both at up to 512 elements. The rule solves G = sum_r a_r g_r for the factors a_r by least
    squares. With W ranks, they are all 1 / W for a mean, and equal, but smaller, if G was clipped
    or unscaled afterwards. Fires when the same holds at ``patience`` checks in a row:

    - All a_r are 1, and each rank's backward pass begins with a loss that is the mean of its own
      rows: the gradients are summed, so the learning rate is W times as high. The sum is right for
      losses that are divided by the rows of all ranks.
    - The a_r differ and none is above 1 / W: each rank clips or scales its gradient before the
      reduction, so the ranks do not count alike.
    - All backward passes of a step with several of them reduce gradients: all but the last could
      be within ``no_sync()``. This costs time only (info).
    - The only loss, a mean, is divided by W before the only backward pass of a step, which
      `DistributedDataParallel` reduces to a mean by itself: the gradients are W times too small
      (info: the divisor may be another number that equals W). Half a squared error is usual.

    Silent if the residual is above 1e-3 of G: noise, compression, or another reduction.

    Args:
        every: train steps between checks; from step 150 on, five times as many.
        patience: number of consecutive checks.
    """

    fault = "gradient_reduction"
    position = 462

    def __init__(self, every: int = 50, patience: int = 2) -> None:
        super().__init__(patience, every)
        # What reduces the gradients rarely changes.
        self.needs = (
            Need("rank_gradients", every, rarer_from=_EARLY, regex=_CAPTURED, required=False),
        )
        self._samples: defaultdict[str, Aligned[_Sample]] = defaultdict(Aligned)
        self._losses: dict[str, dict[str, Any]] = {}
        # Of each model.
        self._seen = defaultdict[str, Patience](functools.partial(Patience, patience))

    def begin(self, info: RunRecord) -> None:
        """Read the number of ranks, and which losses are means."""
        super().begin(info)
        self._losses = info.losses

    def on_record(self, info: RunRecord) -> None:
        """Read which losses are means."""
        self._losses = info.losses

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`: here, of all ranks."""
        for name in step.tensor_names:
            found = _NAME.match(name)
            finding = self._look(step, found[1]) if found else None
            if finding is not None:
                return finding
        return None

    def _look(self, step: Step, prefix: str) -> Finding | None:
        ranks = self._samples[prefix].add(step, self._sample(step, prefix), self.world)
        if ranks is None:
            return None
        fault = _fault_of(ranks)
        if fault is None:
            self._seen.pop(prefix, None)
            return None
        if not self._seen[prefix].add(step.step, seen=True, kind=fault.kind):
            return None
        return self.found(
            step,
            since=self._seen[prefix].since,
            rank=fault.ranks[0] if fault.ranks else 0,
            tensor=f"ranks/{prefix}gradients",
            statistic=fault.kind,
            value=fault.value,
            threshold=fault.threshold,
            confidence=fault.confidence,
            seen=fault.seen,
            cause=fault.cause,
            remedy=fault.remedy,
            severity="info" if fault.hint else None,
            evidence={"kind": fault.kind, "checks": self._seen[prefix].count, **_evidence(ranks)},
        )

    def _is_mean(self, loss: str) -> bool:
        known = self._losses.get(loss, {})
        return not known.get("custom") and known.get("settings", {}).get("reduction") == "mean"

    def _is_square(self, loss: str) -> bool:
        known = self._losses.get(loss, {})
        return "mse" in f"{known.get('type')} {known.get('function')}".lower()

    def _sample(self, step: Step, prefix: str) -> _Sample:
        local, consumed = (
            np.asarray(step.tensor(f"ranks/{prefix}{word}"), np.float64)
            for word in ("local_gradients", "gradients")
        )
        passes, reducing, objective = (
            step.scalars.get(f"ranks/{prefix}{word}", math.nan)
            for word in ("passes", "reducing_passes", "objective")
        )
        losses = {name.partition("/")[2]: loss for name, loss in step.scalars_of("losses").items()}
        means = {name: loss for name, loss in losses.items() if passes == 1 and self._is_mean(name)}
        mean = any(math.isclose(loss, objective, rel_tol=1e-6) for loss in means.values())
        divisor = math.nan
        if len(losses) == len(means) == 1:
            [(name, loss)] = means.items()
            found = step.scalars.get(f"ranks/{prefix}divisor", math.nan)
            # A loss that is not given to the hook is what the backward pass begins with.
            divided = any(math.isclose(loss, k * objective, rel_tol=1e-5) for k in (1, found))
            if divided and not (self.world == 2 and self._is_square(name)):
                divisor = found
        return _Sample(local, consumed, passes, reducing, mean, divisor)


@np.errstate(all="ignore")
def _factors(ranks: list[_Sample]) -> _Vector | None:
    """Return the factor a_r of each rank in the gradient that is consumed, float64 [W].

    None if that gradient is not a weighted sum of the ranks' gradients.
    """
    whole = ranks[0].consumed
    if len({rank.local.shape for rank in ranks}) > 1 or whole.shape != ranks[0].local.shape:
        return None
    if any(not np.array_equal(rank.consumed, whole) for rank in ranks):
        # Not reduced: see `ReplicaDivergence`.
        return None
    own = np.stack([rank.local for rank in ranks], axis=1)
    size = float(np.linalg.norm(whole))
    if len(whole) < _FEWEST * len(ranks) or not (np.isfinite(own).all() and 0 < size < np.inf):
        return None
    factors, _, order, _ = np.linalg.lstsq(own, whole, rcond=_EXACT)
    if order < len(ranks) or np.linalg.norm(own @ factors - whole) > _EXACT * size:
        return None
    return np.asarray(factors, np.float64)


def _fault_of(ranks: list[_Sample]) -> _Fault | None:
    """Return what is wrong with the reduction at one step, or None."""
    world = len(ranks)
    factors = _factors(ranks)
    if factors is not None:
        low, high = float(factors.min()), float(factors.max())
        summed = abs(low - 1) < _EXACT and abs(high - 1) < _EXACT
        if summed and all(rank.mean for rank in ranks):
            return _summed(world)
        if high - low > 10 * _EXACT * high and low > 0 and high < (1 + _EXACT) / world:
            return _scaled_apart(factors, world)
    if all(rank.reducing == 1 and rank.divisor == world for rank in ranks):
        return _divided(world)
    passes = ranks[0].passes
    if passes > 1 and all(rank.passes == passes == rank.reducing for rank in ranks):
        return _Fault(
            "reduced_too_often",
            f"a step has {passes:.0f} backward passes, and each reduces the gradients over the "
            "ranks",
            "gradients are accumulated without no_sync()",
            "run all backward passes of a step but the last, with their forwards, within `with "
            f"model.no_sync():`; this saves {passes - 1:.0f} of {passes:.0f} reductions",
            passes,
            1.0,
            0.9,
            hint=True,
        )
    return None


def _summed(world: int) -> _Fault:
    return _Fault(
        "summed",
        f"the gradient is the sum of those of {world} ranks, not their mean",
        f"the gradients are not divided by the number of ranks: the learning rate is {world} times "
        "as high",
        "divide the gradients by the number of ranks after reducing them (ReduceOp.AVG, or "
        "gradient.div_(world_size)), or the loss by the rows of all ranks",
        1.0,
        1 / world,
        0.9,
    )


def _divided(world: int) -> _Fault:
    return _Fault(
        "divided_by_ranks",
        f"the backward pass begins with the loss divided by {world}, and DistributedDataParallel "
        f"takes the mean of the gradients of {world} ranks, too",
        f"if this {world} is the number of ranks, the gradients are {world} times too small; if it "
        "is another number, nothing is wrong",
        "do not divide the loss by the number of ranks",
        1 / world,
        1.0,
        0.6,
        hint=True,
    )


def _scaled_apart(factors: _Vector, world: int) -> _Fault:
    shares = {rank: f"{one:.3g}" for rank, one in enumerate(factors)}
    least = int(factors.argmin())
    return _Fault(
        "scaled_before_reduction",
        f"the ranks have different factors in the mean of their gradients: {told(shares)}, instead "
        f"of {1 / world:.3g} each",
        "each rank clips or scales its own gradient before the reduction, so rows count less on a "
        "rank with large gradients",
        "clip after the reduction: clip_grad_norm_ between the last all_reduce and the step",
        float(factors[least]),
        1 / world,
        0.8,
        (least,),
    )


def _evidence(ranks: list[_Sample]) -> dict[str, Any]:
    factors = _factors(ranks)
    return {
        "factors": None if factors is None else factors.tolist(),
        "passes": ranks[0].passes,
        "reducing_passes": ranks[0].reducing,
    }
