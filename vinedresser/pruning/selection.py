"""Choosing the channels to remove: exactly as many as asked for, lowest scores first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import PruningError
from vinedresser.pruning.group import Group

__all__ = ["NO_LIMITS", "Limits", "removable", "select"]

_Block = tuple[float, int, int, int]
"""Mean score, place of its group, number of channels removed before it, and its size."""


@dataclass(frozen=True)
class Limits:
    """What a removal must leave.

    Attributes:
        floor: least number of channels that every group keeps.
        floor_share: least share of its channels that every group keeps, from 0 to 1.
        round_to: numbers of channels that are kept are multiples of this; groups that already have
            fewer are left alone.
    """

    floor: int = 1
    floor_share: float = 0.0
    round_to: int = 1

    def kept(self, group: Group) -> int:
        """Return the least number of channels that a group may keep."""
        least = max(1, self.floor, int(np.ceil(group.size * self.floor_share)))
        return min(group.size, -(-least // self.round_to) * self.round_to)


NO_LIMITS = Limits()


def removable(groups: Sequence[Group], limits: Limits) -> int:
    """Return how many channels the limits allow to remove from groups that are not locked."""
    return sum(sum(_sizes(group, limits)) for group in groups if not group.locked)


def select(
    groups: Sequence[Group],
    scores: Mapping[str, NDArray[np.float64]],
    count: int,
    limits: Limits = NO_LIMITS,
) -> dict[str, tuple[int, ...]]:
    """Choose the channels with the lowest scores in all groups.

    Ties go to the group that runs first, then to the lowest channel number. With ``round_to`` above
    1, channels go in blocks, by the blocks' mean score, and the number removed is the largest that
    whole blocks allow, at most ``count``.

    Args:
        groups: the model's groups, in the order in which they run; locked ones are left alone.
        scores: float64 [channels] of each group to choose from.
        count: number of channels to remove.
        limits: what to leave.

    Returns:
        Removed channels by group, sorted; groups without any are absent.

    Raises:
        PruningError: fewer can be removed, or scores are missing, not finite or of another length.
    """
    candidates = [group for group in groups if group.name in scores and not group.locked]
    for group in candidates:
        _check(group, scores[group.name])
    most = removable(candidates, limits)
    if count > most:
        raise PruningError(
            f"{count} filters were to be removed, but the limits allow {most} of "
            f"{sum(group.size for group in candidates)}"
        )
    orders = [np.argsort(scores[group.name], kind="stable") for group in candidates]
    blocks: list[_Block] = []
    for place, group in enumerate(candidates):
        blocks += _blocks(scores[group.name][orders[place]], place, group, limits)
    taken = [0] * len(candidates)
    closed: set[int] = set()
    left = count
    for _, place, _, size in sorted(blocks):
        if place not in closed and size <= left:
            taken[place] += size
            left -= size
        else:
            # A later block of this group must not be taken without this one.
            closed.add(place)
    return {
        group.name: tuple(sorted(orders[place][: taken[place]].tolist()))
        for place, group in enumerate(candidates)
        if taken[place]
    }


def _sizes(group: Group, limits: Limits) -> list[int]:
    """Return the numbers of channels of the blocks in which a group's channels may go."""
    spare = group.size - limits.kept(group)
    first = group.size % limits.round_to or limits.round_to
    if first > spare:
        return []
    return [first] + [limits.round_to] * ((spare - first) // limits.round_to)


def _blocks(
    ascending: NDArray[np.float64], place: int, group: Group, limits: Limits
) -> list[_Block]:
    """Return the blocks in which a group's channels may go, lowest scores first."""
    sizes = np.array(_sizes(group, limits), dtype=np.int64)
    if not sizes.size:
        return []
    gone = np.cumsum(sizes) - sizes
    means = np.add.reduceat(ascending[: sizes.sum()], gone) / sizes
    # Scores ascend, so means do, too, up to rounding: a block never precedes an earlier one.
    highest = np.maximum.accumulate(means)
    each = zip(highest.tolist(), gone.tolist(), sizes.tolist(), strict=True)
    return [(mean, place, before, size) for mean, before, size in each]


def _check(group: Group, scores: NDArray[np.float64]) -> None:
    if scores.shape != (group.size,):
        raise PruningError(
            f"{group.name}: scores have shape {list(scores.shape)}; {group.size} channels need "
            f"[{group.size}]"
        )
    if not np.isfinite(scores).all():
        channel = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise PruningError(
            f"{group.name}: the score of channel {channel} is {scores[channel]}; scores must be "
            "finite"
        )
