"""From labels to groups of channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vinedresser.pruning.group import Group, Indices, Kind, Member
from vinedresser.pruning.torch_.context import Context

__all__ = ["Grouping", "group"]


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
    alike: dict[tuple[tuple[int, ...], str], list[tuple[int, Indices]]] = {}
    places = np.searchsorted(labels.firsts, np.arange(labels.count), side="right") - 1
    made = np.zeros(len(labels.axes), dtype=bool)
    made[list(ctx.made)] = True
    for root, ids in _components(every):
        own = places[ids]
        if made[own].any():
            key = (tuple(own.tolist()), reasons.get(root, ""))
            alike.setdefault(key, []).append((root, ids))
    found = [
        (_first_made(ctx, own), own, reason, channels) for (own, reason), channels in alike.items()
    ]
    # The layer that runs first names the group.
    found.sort(key=lambda one: (ctx.made[one[0]].order, one[3][0][0]))
    heads = every[np.concatenate([np.zeros(0, dtype=np.int64), *ctx.head_labels])]
    groups: list[Group] = []
    roots: dict[str, Indices] = {}
    for first, axes, reason, channels in found:
        name = _unique(_layer_name(labels.axes[first].tensor), roots)
        own = np.array([root for root, _ in channels], dtype=np.int64)
        table = np.stack([ids for _, ids in channels])
        made_by = {ctx.made[place].kind for place in axes if place in ctx.made}
        kind: Kind = "filters" if "filters" in made_by else "units"
        if np.isin(own, heads).any():
            kind = "heads"
        groups.append(
            Group(
                name=name,
                kind=kind,
                size=len(channels),
                members=_members(ctx, axes, table),
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


def _first_made(ctx: Context, places: tuple[int, ...]) -> int:
    made = [place for place in places if place in ctx.made]
    return min(made, key=lambda place: (ctx.made[place].order, place))


def _members(ctx: Context, places: tuple[int, ...], table: Indices) -> tuple[Member, ...]:
    """Return a member for each axis; labels of a channel ascend, so those of an axis are in a row.

    Args:
        places: the axis of each of a channel's labels.
        table: int64 [channels, labels].
    """
    members = []
    for place in dict.fromkeys(places):
        axis = ctx.labels.axes[place]
        indices = table[:, np.array(places) == place] - axis.first
        members.append(Member(axis.tensor, axis.axis, indices, ctx.roles.get(place, "other")))
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
