"""From labels to groups of channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vinedresser.pruning.group import Group, Indices, Kind, Member
from vinedresser.pruning.torch_.context import Context

__all__ = ["Grouping", "group"]

_Slot = tuple[int, int]
"""Place of an axis, and how many of its indices belong to a channel."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups, with the labels of their channels.

    Attributes:
        groups: the groups, in the order in which the model makes their channels.
        roots: int64 [channels] for each group: the root of each channel's labels.
        label_roots: int64 [labels]: the root of every label.
    """

    groups: tuple[Group, ...]
    roots: Mapping[str, Indices]
    label_roots: Indices

    def removed_roots(self, channels: Mapping[str, tuple[int, ...]]) -> Indices:
        """Return the roots of channels."""
        found = [self.roots[name][list(numbers)] for name, numbers in channels.items()]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])

    def removed_labels(self, channels: Mapping[str, tuple[int, ...]]) -> Indices:
        """Return all labels of channels."""
        return np.flatnonzero(np.isin(self.label_roots, self.removed_roots(channels)))

    def labels_of(self, name: str) -> Indices:
        """Return all labels of a group."""
        return np.flatnonzero(np.isin(self.label_roots, self.roots[name]))


def group(ctx: Context) -> Grouping:
    """Collect channels that are made by the same layers and lie in the same places.

    Args:
        ctx: a finished trace.
    """
    labels = ctx.labels
    every = labels.roots(np.arange(labels.count))
    reasons: dict[int, str] = {}
    for ids, reason in labels.locks:
        for root in np.unique(every[ids]).tolist():
            reasons.setdefault(root, reason)
    alike: dict[tuple[tuple[_Slot, ...], str], list[tuple[int, Indices]]] = {}
    for root, ids in _components(every):
        places, counts = np.unique(_places(ctx, ids), return_counts=True)
        slots = tuple(zip(places.tolist(), counts.tolist(), strict=True))
        if any(place in ctx.made for place, _ in slots):
            alike.setdefault((slots, reasons.get(root, "")), []).append((root, ids))
    found = [
        (_first_made(ctx, slots), slots, reason, channels)
        for (slots, reason), channels in alike.items()
    ]
    # The layer that runs first names the group.
    found.sort(key=lambda one: (ctx.made[one[0]].order, one[3][0][0]))
    heads = every[np.concatenate([np.zeros(0, dtype=np.int64), *ctx.head_labels])]
    groups: list[Group] = []
    roots: dict[str, Indices] = {}
    for first, slots, reason, channels in found:
        name = _unique(_layer_name(labels.axes[first].tensor), roots)
        own = np.array([root for root, _ in channels], dtype=np.int64)
        table = np.stack([ids for _, ids in channels])
        made_by = {ctx.made[place].kind for place, _ in slots if place in ctx.made}
        kind: Kind = "filters" if "filters" in made_by else "units"
        if np.isin(own, heads).any():
            kind = "heads"
        groups.append(
            Group(
                name=name,
                kind=kind,
                size=len(channels),
                members=_members(ctx, slots, table),
                locked=reason,
            )
        )
        roots[name] = own
    return Grouping(tuple(groups), roots, every)


def _components(every: Indices) -> list[tuple[int, Indices]]:
    """Return each root with its labels, ascending; 0 is left out."""
    order = np.argsort(every, kind="stable")
    ordered = every[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    parts = np.split(order, starts[1:])
    return [(int(every[part[0]]), part) for part in parts if every[part[0]] != 0]


def _places(ctx: Context, ids: Indices) -> Indices:
    return np.searchsorted(ctx.labels.firsts, ids, side="right") - 1


def _first_made(ctx: Context, slots: tuple[_Slot, ...]) -> int:
    made = [place for place, _ in slots if place in ctx.made]
    return min(made, key=lambda place: (ctx.made[place].order, place))


def _members(ctx: Context, slots: tuple[_Slot, ...], table: Indices) -> tuple[Member, ...]:
    """Return a member for each axis; labels of a channel ascend, so those of an axis are in a row.

    Args:
        ctx: the trace.
        slots: the axes.
        table: int64 [channels, labels].
    """
    members = []
    start = 0
    for place, count in slots:
        axis = ctx.labels.axes[place]
        indices = table[:, start : start + count] - axis.first
        members.append(Member(axis.tensor, axis.axis, indices, ctx.roles.get(place, "other")))
        start += count
    return tuple(members)


def _layer_name(tensor: str) -> str:
    path = tensor.partition(".parametrizations.")[0]
    if path != tensor:
        return path
    layer, _, last = tensor.rpartition(".")
    return layer if layer and last in {"weight", "weight_v", "weight_g"} else tensor


def _unique(name: str, taken: Mapping[str, Indices]) -> str:
    numbered = name
    number = 1
    while numbered in taken:
        number += 1
        numbered = f"{name}#{number}"
    return numbered
