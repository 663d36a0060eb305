"""Removals that get a model down to a target: parameters, operations, bytes, latency."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any

from vinedresser.errors import PruningError
from vinedresser.pruning.latency import Latency, compared_latency, measured_latency
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.ranking import Removal, filters_of

__all__ = ["Targets", "are_for_speed", "planned"]

# Latencies of one model, measured again, differ by about this much.
_TOLERANCE = 0.05
_MOST_MEASUREMENTS = 12
# Turns. The lowest of several noisy figures is too low, so what seems to fit is measured again.
_TRYING, _CONFIRMING = 11, 33


@dataclass(frozen=True)
class Targets:
    """What a model is to cost at most; None: no limit.

    Attributes:
        parameters: number of elements of its parameters.
        macs: multiply-accumulate operations for one example.
        size_bytes: bytes of its parameters and buffers.
        latency: share of the latency before the removal, between 0 and 1; 5 % more are accepted.

    Raises:
        PruningError: a cost is not a number.
    """

    parameters: int | None = None
    macs: int | None = None
    size_bytes: int | None = None
    latency: float | None = None

    def __post_init__(self) -> None:
        """Refuse shares as text, which a prune file may have."""
        costs: dict[str, Any] = dict(self.costs)
        for name, value in costs.items():
            if isinstance(value, bool) or not isinstance(value, Real):
                raise PruningError(f"{name}: {value!r} is not a number")

    @property
    def given(self) -> dict[str, Any]:
        """The targets that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def costs(self) -> dict[str, int]:
        """Targets by field of `Cost`: what is known without running the model."""
        return {name: value for name, value in self.given.items() if name != "latency"}


def are_for_speed(targets: Collection[str]) -> bool:
    """Return whether there are targets, and all are by operations or latency."""
    return bool(targets) and {*targets} <= {"macs", "latency"}


def planned(
    removal: Removal, example: Any, amount: int | str | Mapping[str, int] | None, targets: Targets
) -> tuple[Plan, int, Latency | None]:
    """Return the plan that removes an amount, or as few filters as it takes to reach targets.

    Args:
        removal: the ranked model.
        example: an input of the model, for latency.
        amount: see `vinedresser.pruning.prune`.
        targets: what to reach; with an amount, fewer filters go if that reaches the costs.

    Returns:
        The plan, the number of filters that it was to remove, and, with a target by latency, what
        was measured.

    Raises:
        PruningError: neither is given, they do not go together, one is not valid, or a target
            cannot be reached.
    """
    if amount is not None:
        return *_by_amount(removal, amount, targets), None
    if targets == Targets():
        raise PruningError("pass amount, or parameters, macs, size_bytes or latency to get down to")
    count = removal.count_for(**targets.costs)
    reached = removal.cost(removal.plan(count))
    for name, wanted in targets.costs.items():
        if getattr(reached, name) > wanted:
            raise PruningError(
                f"{name}: {wanted} cannot be reached: the limits leave {getattr(reached, name)}"
            )
    if targets.latency is not None:
        return _by_latency(removal, example, targets.latency, count)
    if not count:
        raise PruningError(f"the model costs no more than that already: {reached}")
    return removal.plan(count), count, None


def _by_amount(
    removal: Removal, amount: int | str | Mapping[str, int], targets: Targets
) -> tuple[Plan, int]:
    """Return the plan that removes an amount, or less if less reaches the targets."""
    if targets.latency is not None or (isinstance(amount, Mapping) and targets.costs):
        raise PruningError(
            "amount: with a target by latency, and by group with any target, pass only one of them"
        )
    if isinstance(amount, Mapping):
        return removal.plan_each(amount), sum(amount.values())
    count = filters_of(amount, removal.groups)
    if targets.costs:
        count = min(count, removal.count_for(**targets.costs))
    plan = removal.plan(count)
    if not plan.count:
        why = f"{count} is less than a block of {removal.limits.round_to}" if count else "reached"
        raise PruningError(f"amount: no filters are to be removed: {why}")
    return plan, count


def _by_latency(
    removal: Removal, example: Any, target: float, least: int
) -> tuple[Plan, int, Latency]:
    """Return a plan whose latency is within 5 % of a share of the model's, or just below it.

    The search begins with the share of operations. Latency is about proportional to operations, so
    each measurement improves the estimate, and bisects the number of filters where it misleads:
    an odd number of channels can be slower than the next multiple of 8.

    Args:
        example: an input of the model.
        least: least number of filters to remove.
    """
    if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < 1:
        raise PruningError(
            f"latency: {target!r}: must be a share of the model's latency, between 0 and 1"
        )
    tried = _Tried(removal, example)
    low, high = max(least, 1), removal.most
    macs: float = removal.cost().macs
    share = 1.0
    while low <= high and tried.measurements < _MOST_MEASUREMENTS:
        count = removal.count_for(macs=macs * target / share)
        if not low <= count <= high:
            count = low if not tried.times and count < low else (low + high) // 2
        plan = removal.plan(count)
        if not plan.count:
            low = count + 1
            continue
        macs, share = removal.cost(plan).macs, tried.share(plan)
        if abs(share / target - 1) <= _TOLERANCE:
            share = tried.confirmed(plan, target * (1 + _TOLERANCE))
            if abs(share / target - 1) <= _TOLERANCE:
                return plan, count, tried.latency()
        if share > target:
            low = count + 1
        else:
            high = plan.count - 1
    return _smallest_below(removal, tried, target)


def _smallest_below(removal: Removal, tried: _Tried, target: float) -> tuple[Plan, int, Latency]:
    """Return the plan that removes least of those whose latency is at most 5 % above a target.

    Other load can have misled the search: what would do was not tried, or seemed not to do. So the
    most that may be removed is measured for longer before the target is said to be out of reach.

    Args:
        tried: what the search has measured.
        target: share of the latency of the model.
    """
    most = target * (1 + _TOLERANCE)
    between = (max(tried.times, default=0) + removal.most) // 2
    for count in sorted({*tried.times, between, removal.most}):
        plan = removal.plan(count)
        if not plan.count:
            continue
        fits = tried.share(plan) <= most or count == removal.most
        if fits and tried.confirmed(plan, most) <= most:
            return plan, count, tried.latency()
    closest = min((after / before for before, after in tried.times.values()), default=1.0)
    raise PruningError(
        f"latency: {target} of the model's cannot be reached: with up to {removal.most} filters "
        f"less, which the limits allow, it is {closest:.2f} at best"
    )


class _Tried:
    """Removals whose latency was measured.

    Args:
        example: an input of the model.

    Attributes:
        times: seconds of the model before and after the removal, by number of filters.
        measurements: number of measurements.
    """

    def __init__(self, removal: Removal, example: Any) -> None:
        self._removal, self._example = removal, example
        self.times: dict[int, tuple[float, float]] = {}
        self.measurements = 0
        self._confirmed: Latency | None = None

    def share(self, plan: Plan) -> float:
        """Return the share of the latency that a plan leaves, measured if it was not yet."""
        if plan.count not in self.times:
            return self.measured(plan, _TRYING)
        before, after = self.times[plan.count]
        return after / before

    def measured(self, plan: Plan, turns: int) -> float:
        """Measure a plan and return the share that it leaves."""
        prunable = self._removal.prunable
        models = prunable.model, prunable.removed(plan)
        before, after = measured_latency(models, self._example, turns=turns)
        self.times[plan.count] = before, after
        self.measurements += 1
        return after / before

    def confirmed(self, plan: Plan, most: float) -> float:
        """Measure a plan for longer, with its spread, and return the share that it leaves.

        Args:
            most: share up to which it fits.
        """
        prunable = self._removal.prunable
        found = compared_latency(
            prunable.removed(plan), prunable.model, self._example, turns=_CONFIRMING
        )
        self.measurements += 1
        self.times[plan.count] = found.before, found.after
        self._confirmed = replace(found, measurements=self.measurements)
        assert found.low is not None
        assert found.high is not None
        if found.low <= most < found.high and not found.shown.is_clear:
            raise PruningError(
                f"latency: without {plan.count} filters, {found.shown} of the model's: try a "
                "quieter machine or a larger example"
            )
        return found.share

    def latency(self) -> Latency:
        """Return what was measured of the plan that was confirmed last."""
        assert self._confirmed is not None
        return self._confirmed
