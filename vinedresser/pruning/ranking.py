"""Ranking channels and planning which of them to remove."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import PruningError, did_you_mean
from vinedresser.pruning.cost import Cost, SavedMacs, cost
from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors, Measured
from vinedresser.pruning.group import Group, layer_of
from vinedresser.pruning.plan import Plan, architecture_digest, make_plan
from vinedresser.pruning.prunable import Prunable
from vinedresser.pruning.selection import (
    NO_LIMITS,
    Block,
    Limits,
    by_macs,
    by_score,
    removable,
    select,
)
from vinedresser.quantities import parse_amount

__all__ = ["Removal", "candidates", "filters_of", "rank"]


def filters_of(amount: int | str, groups: Sequence[Group]) -> int:
    """Return the number of filters that an amount stands for.

    Args:
        amount: a number of filters, or a share of the filters of the groups, such as "10%", which
            is rounded down, but is at least one filter.
        groups: the groups to choose from.

    Raises:
        PruningError: it is neither, or not above 0.
    """
    try:
        number = parse_amount(amount)
    except ValueError as error:
        raise PruningError(f"amount: {error}") from error
    if isinstance(number, int):
        return number
    return max(1, int(number * sum(group.size for group in groups)))


def candidates(
    groups: Sequence[Group], *, kinds: Collection[str] = ("filters",), ignore: Collection[str] = ()
) -> list[Group]:
    """Return the groups whose channels may be removed.

    Args:
        kinds: kinds of groups to choose from.
        ignore: layers to leave alone; a group is left alone if one of them makes its channels.

    Raises:
        PruningError: no group has such a layer, or nothing is left.
    """
    makers = {group.name: _makers(group) for group in groups}
    known = sorted(set().union(*makers.values()))
    for layer in ignore:
        if layer not in known:
            near = did_you_mean(layer, known) or f"; layers are {', '.join(known)}"
            raise PruningError(f"ignore: {layer!r} is not a layer whose channels can go{near}")
    found = [
        group
        for group in groups
        if group.kind in kinds and not group.locked and not makers[group.name] & set(ignore)
    ]
    if not found:
        reasons: dict[str, list[str]] = {}
        for one in groups:
            reasons.setdefault(one.locked, []).append(one.name)
        said = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items() if why)
        raise PruningError(f"no filters can be removed{': ' + said if said else ''}")
    return found


def _makers(group: Group) -> set[str]:
    """Return the names of the layers that make a group's channels."""
    return {layer_of(one.tensor) for one in group.of_role("filter")} | {group.name}


def rank(
    tensors: Mapping[str, NDArray[Any]],
    groups: Sequence[Group],
    criterion: Criterion,
    measured: Measured,
) -> dict[str, Floats]:
    """Return the scores of channels by group, float64 [channels].

    Args:
        tensors: the model's parameters and buffers by name.
        measured: what it needs measured.

    Raises:
        PruningError: a group lacks what the criterion needs, or a score is not finite.
    """
    return {
        group.name: np.asarray(
            criterion.score(GroupTensors(group, tensors, measured)), dtype=np.float64
        )
        for group in groups
    }


@dataclass(frozen=True)
class Removal:
    """A ranked model, of which any number of filters can be planned away.

    Attributes:
        groups: groups to choose from.
        scores: float64 [channels] by group.
        criterion: name of the criterion.
        limits: what to leave.
        losses: the loss by number of channels removed from each group; see `by_macs`. With it, the
            scores only order the channels of a group; None: filters go by their scores alone.
    """

    prunable: Prunable[Any]
    groups: Sequence[Group]
    scores: Mapping[str, Floats]
    criterion: str
    limits: Limits = NO_LIMITS
    losses: Mapping[str, Mapping[int, float]] | None = None

    @property
    def most(self) -> int:
        """Number of filters that the limits allow to remove."""
        return removable(self.groups, self.limits)

    def plan(self, count: int) -> Plan:
        """Return the plan that removes a number of filters.

        Raises:
            PruningError: the limits do not allow it.
        """
        return self._plan(select(self.groups, self.scores, count, self.limits, self._order))

    def plan_each(self, counts: Mapping[str, int]) -> Plan:
        """Return the plan that removes a number of channels from each of some groups.

        Raises:
            PruningError: no group to choose from has this name, or the limits do not allow it.
        """
        by_name = {group.name: group for group in self.groups}
        channels: dict[str, tuple[int, ...]] = {}
        for name, count in counts.items():
            if name not in by_name:
                near = did_you_mean(name, by_name) or f"; groups are {', '.join(by_name)}"
                raise PruningError(f"amount: {name!r} is not a group to choose from{near}")
            channels |= select([by_name[name]], self.scores, count, self.limits)
        return self._plan(channels)

    def scanned(
        self, evaluate: Callable[[Any], float], shares: Sequence[float]
    ) -> dict[str, dict[int, float]]:
        """Evaluate the model with each group pruned alone.

        Args:
            evaluate: returns a figure of a model.
            shares: shares of each group's channels to remove, above 0; no more than the limits
                allow, in whole blocks.

        Returns:
            The figure by group and number of removed channels, at 0 the unpruned model's.
        """
        before = evaluate(self.prunable.model)
        found: dict[str, dict[int, float]] = {}
        for group in self.groups:
            figures = found.setdefault(group.name, {0: before})
            most = removable([group], self.limits)
            for count in sorted({min(most, round(share * group.size)) for share in shares}):
                plan = self.plan_each({group.name: count})
                if plan.count not in figures:
                    figures[plan.count] = evaluate(self.prunable.removed(plan))
        return found

    def _plan(self, channels: Mapping[str, tuple[int, ...]]) -> Plan:
        return make_plan(
            channels,
            {group.name: group for group in self.groups},
            architecture=architecture_digest(self._shapes),
            criterion=self.criterion if self.losses is None else f"{self.criterion}, loss per MAC",
            scores=self.scores,
            attributes=self.prunable.attributes(channels),
        )

    def cost(self, plan: Plan | None = None) -> Cost:
        """Return the cost of the model, after a plan if one is given."""
        prunable = self.prunable
        return cost(self._shapes, prunable.parameters, prunable.uses, self._item_sizes, plan)

    def count_for(
        self,
        *,
        parameters: float = np.inf,
        macs: float = np.inf,
        size_bytes: float = np.inf,
    ) -> int:
        """Return the least number of filters to remove so that the model costs at most this much.

        Args:
            macs: multiply-accumulate operations.
            size_bytes: bytes of parameters and buffers.

        Returns:
            The number; all that the limits allow if even that costs more.
        """

        def fits(count: int) -> bool:
            after = self.cost(self.plan(count))
            return (
                after.parameters <= parameters
                and after.macs <= macs
                and after.size_bytes <= size_bytes
            )

        low, high = 0, self.most
        while low < high:
            middle = (low + high) // 2
            if fits(middle):
                high = middle
            else:
                low = middle + 1
        return low

    @cached_property
    def _order(self) -> list[Block]:
        """The order in which channels go."""
        if self.losses is None:
            return by_score(self.groups, self.scores, self.limits)
        saved = SavedMacs(self.groups, self._shapes, self.prunable.uses)
        return by_macs(self.groups, self.losses, saved, self.limits)

    @cached_property
    def _item_sizes(self) -> Mapping[str, int]:
        return self.prunable.item_sizes

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.prunable.tensors().items()}
