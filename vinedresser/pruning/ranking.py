"""Ranking channels and planning which of them to remove."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import PruningError, did_you_mean
from vinedresser.pruning.cost import Cost, cost
from vinedresser.pruning.criteria.criterion import Criterion, Floats, GroupTensors, Measured
from vinedresser.pruning.group import Group, layer_of
from vinedresser.pruning.plan import Plan, architecture_digest, make_plan
from vinedresser.pruning.prunable import Prunable
from vinedresser.pruning.selection import NO_LIMITS, Limits, removable, select

__all__ = ["Removal", "candidates", "parse_amount", "rank"]

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def parse_amount(amount: int | str, groups: Sequence[Group]) -> int:
    """Return the number of filters that an amount stands for.

    Args:
        amount: a number of filters, or a share of the filters of the groups, such as "10%", which
            is rounded down, but is at least one filter.
        groups: the groups to choose from.

    Raises:
        PruningError: it is neither, or not above 0.
    """
    if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0:
        return amount
    match = _SHARE.fullmatch(amount.strip()) if isinstance(amount, str) else None
    percent = Decimal(match[1]) if match else Decimal(0)
    if not 0 < percent < 100:
        raise PruningError(
            f'amount: {amount!r}: must be a number of filters, or a share such as "10%"'
        )
    return max(1, int(percent * sum(group.size for group in groups) / 100))


def candidates(
    groups: Sequence[Group], *, kinds: Collection[str] = ("filters",), ignore: Collection[str] = ()
) -> list[Group]:
    """Return the groups whose channels may be removed.

    Args:
        groups: the model's groups.
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
        reasons = "; ".join(f"{one.name}: {one.locked}" for one in groups if one.locked)
        raise PruningError(f"no filters can be removed{': ' + reasons if reasons else ''}")
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
        groups: groups to rank.
        criterion: the criterion.
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
        prunable: the model.
        groups: groups to choose from.
        scores: float64 [channels] by group.
        criterion: name of the criterion.
        limits: what to leave.
    """

    prunable: Prunable[Any]
    groups: Sequence[Group]
    scores: Mapping[str, Floats]
    criterion: str
    limits: Limits = NO_LIMITS

    @property
    def most(self) -> int:
        """Number of filters that the limits allow to remove."""
        return removable(self.groups, self.limits)

    def plan(self, count: int) -> Plan:
        """Return the plan that removes a number of filters.

        Raises:
            PruningError: the limits do not allow it.
        """
        return self._plan(select(self.groups, self.scores, count, self.limits))

    def plan_each(self, counts: Mapping[str, int]) -> Plan:
        """Return the plan that removes a number of channels from each of some groups.

        Args:
            counts: number of channels by group.

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

    def _plan(self, channels: Mapping[str, tuple[int, ...]]) -> Plan:
        return make_plan(
            channels,
            {group.name: group for group in self.groups},
            architecture=architecture_digest(self._shapes),
            criterion=self.criterion,
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
            parameters: number of parameters.
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
    def _item_sizes(self) -> Mapping[str, int]:
        return self.prunable.item_sizes

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.prunable.tensors().items()}
