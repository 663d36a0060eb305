"""Choosing the channels to remove: exactly as many as asked for, the least important first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import PruningError
from vinedresser.pruning.cost import SavedMacs
from vinedresser.pruning.group import Group

__all__ = ["NO_LIMITS", "Block", "Limits", "by_macs", "by_score", "removable", "select"]

Block = tuple[int, int]
"""Channels of a group that go together: place of the group, and their number."""


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


def by_score(
    groups: Sequence[Group], scores: Mapping[str, NDArray[np.float64]], limits: Limits = NO_LIMITS
) -> list[Block]:
    """Order all blocks that may go, those with the lowest mean score first.

    Ties go to the group that runs first.

    Args:
        groups: groups to choose from, in the order in which they run.
        scores: float64 [channels] of each group.
        limits: what to leave.

    Returns:
        All blocks that the limits allow to remove, with groups counted from 0. Those of a group are
        in the ascending order of its scores.

    Raises:
        PruningError: scores are not finite, or of another length.
    """
    blocks: list[tuple[float, int, int, int]] = []
    for place, group in enumerate(groups):
        sizes = np.array(_sizes(group, limits), dtype=np.int64)
        _check(group, scores[group.name])
        if not sizes.size:
            continue
        ascending = np.sort(scores[group.name])
        gone = np.cumsum(sizes) - sizes
        means = np.add.reduceat(ascending[: sizes.sum()], gone) / sizes
        # Scores ascend, so means do, too, up to rounding: a block never precedes an earlier one.
        highest = np.maximum.accumulate(means)
        blocks += zip(
            highest.tolist(), [place] * sizes.size, gone.tolist(), sizes.tolist(), strict=True
        )
    return [(place, size) for _, place, _, size in sorted(blocks)]


def by_macs(
    groups: Sequence[Group],
    losses: Mapping[str, Mapping[int, float]],
    saved_macs: SavedMacs,
    limits: Limits = NO_LIMITS,
) -> list[Block]:
    """Order all blocks that may go, those first that raise the loss least per operation saved.

    This is the greedy solution of a knapsack problem (Dantzig, Discrete-variable extremum problems,
    1957), as Shen et al. (Structural pruning via latency-saliency knapsack, NeurIPS 2022) pose it.
    The operations that a block saves depend on those that went before it. Ties go to the block that
    saves more, then to the group that runs first.

    Args:
        groups: groups to choose from, in the order in which they run.
        losses: the loss by number of channels removed from each group alone, from 0 to all that may
            go; between the numbers, on the lower convex hull. A loss that falls counts as one that
            stays, and one that is not finite as the highest.
        saved_macs: what removals save; afterwards all blocks are removed from it.
        limits: what to leave.

    Returns:
        See `by_score`.
    """
    waiting: list[list[tuple[float, int]]] = []
    for group in groups:
        sizes = _sizes(group, limits)
        rises = np.diff(_convex(losses[group.name], np.cumsum([0, *sizes])))
        waiting.append([*zip(rises.tolist(), sizes, strict=True)][::-1])

    def key(place: int) -> tuple[float, int, int]:
        rise, size = waiting[place][-1]
        saved = saved_macs.saved(place, size)
        return rise / saved if saved else np.inf, -saved, place

    queue = [key(place) for place, blocks in enumerate(waiting) if blocks]
    heapq.heapify(queue)
    order: list[Block] = []
    while queue:
        before = heapq.heappop(queue)
        place = before[-1]
        if key(place) == before:
            _, size = waiting[place].pop()
            saved_macs.remove(place, size)
            order.append((place, size))
        # Otherwise, blocks of other groups have made it save less.
        if waiting[place]:
            heapq.heappush(queue, key(place))
    return order


def select(
    groups: Sequence[Group],
    scores: Mapping[str, NDArray[np.float64]],
    count: int,
    limits: Limits = NO_LIMITS,
    order: Sequence[Block] | None = None,
) -> dict[str, tuple[int, ...]]:
    """Choose the channels to remove.

    In a group, those with the lowest scores go, of equals the lowest channel number. With
    ``round_to`` above 1, channels go in blocks, and the number removed is the largest that whole
    blocks allow, at most ``count``.

    Args:
        groups: the model's groups, in the order in which they run; locked ones are left alone.
        scores: float64 [channels] of each group to choose from.
        count: number of channels to remove.
        limits: what to leave.
        order: the order in which blocks of the groups to choose from go; None: `by_score`.

    Returns:
        Removed channels by group, sorted; groups without any are absent.

    Raises:
        PruningError: fewer can be removed; or see `by_score`.
    """
    groups = [group for group in groups if group.name in scores and not group.locked]
    if order is None:
        order = by_score(groups, scores, limits)
    most = removable(groups, limits)
    if count > most:
        raise PruningError(
            f"{count} filters were to be removed, but the limits allow {most} of "
            f"{sum(group.size for group in groups)}"
        )
    taken = [0] * len(groups)
    closed: set[int] = set()
    left = count
    for place, size in order:
        if place not in closed and size <= left:
            taken[place] += size
            left -= size
        else:
            # A later block of this group must not be taken without this one.
            closed.add(place)
    return {
        group.name: tuple(
            sorted(np.argsort(scores[group.name], kind="stable")[: taken[place]].tolist())
        )
        for place, group in enumerate(groups)
        if taken[place]
    }


def _sizes(group: Group, limits: Limits) -> list[int]:
    """Return the numbers of channels of the blocks in which a group's channels may go."""
    spare = group.size - limits.kept(group)
    first = group.size % limits.round_to or limits.round_to
    if first > spare:
        return []
    return [first] + [limits.round_to] * ((spare - first) // limits.round_to)


def _convex(points: Mapping[int, float], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the lower convex hull of a loss at some numbers of removed channels.

    Args:
        points: the loss by number of removed channels, ascending; finite at 0.
    """
    measured = np.array([*points.values()])
    finite = measured[np.isfinite(measured)]
    # Worse than any loss that was measured.
    highest = finite.max() + 1e6 * (np.ptp(finite) + 1)
    rising = np.maximum.accumulate(np.where(np.isfinite(measured), measured, highest))
    hull: list[tuple[int, float]] = []
    for point in zip(points, rising.tolist(), strict=True):
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    removed, heights = np.array(hull).T
    found: NDArray[np.float64] = np.interp(counts, removed, heights)
    return found


def _slope(one: tuple[int, float], other: tuple[int, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


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
