"""Groups of channels from labels: channels that appear alike in every tensor of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinedresser.pruning.group import Group, Indices, Member
from vinedresser.pruning.keras_.channels import Axis, Labelled
from vinedresser.pruning.keras_.tracing import Trace

__all__ = ["Grouped", "group_channels"]


class Grouped:
    """The groups of a model.

    Attributes:
        groups: the groups, in the order in which the model runs them.
        roots: int64 [channels] of each group by name: the root of the labels of each channel.
    """

    def __init__(self, groups: Sequence[Group], roots: dict[str, Indices]) -> None:
        self.groups = tuple(groups)
        self.roots = roots


def group_channels(trace: Trace) -> Grouped:
    """Return a model's groups.

    Channels are in one group if each axis of a variable and each tensor has them equally often, so
    that a group has a value per channel wherever it appears. The channels of one layer can be in
    several groups; the first has the name of the layer, others are named for their first filter as
    well ("conv2d[8]").
    """
    roots = trace.channels.roots()
    makers = [axis for axis in trace.channels.axes.values() if axis.role == "filter"]
    kinds = _kinds(trace, len(roots))
    groups: list[Group] = []
    roots_of: dict[str, Indices] = {}
    seen: set[int] = set()
    locks = trace.channels.locks()
    members = {
        kind: np.flatnonzero((kinds == kind) & (roots == np.arange(len(roots))))
        for kind in np.unique(kinds)
    }
    users: dict[int, list[Axis]] = {}
    for axis in trace.channels.axes.values():
        for kind in np.unique(kinds[roots[axis.labels]]).tolist():
            if axis.tensor:
                users.setdefault(kind, []).append(axis)
    for maker in makers:
        labels = roots[maker.labels]
        for kind in dict.fromkeys(kinds[labels].tolist()):
            if kind in seen:
                continue
            seen.add(kind)
            first = np.flatnonzero(kinds[labels] == kind)
            found = np.array(list(dict.fromkeys(labels[first].tolist())), np.int64)
            assert len(found) == len(members[kind])
            name = maker.layer if maker.layer not in roots_of else f"{maker.layer}[{first[0]}]"
            roots_of[name] = found
            groups.append(
                Group(
                    name=name,
                    kind="units" if maker.kind == "units" else "filters",
                    size=len(found),
                    members=tuple(_member(axis, roots, found) for axis in users[kind]),
                    locked=locks.get(int(found[0]), ""),
                )
            )
    return Grouped(groups, roots_of)


def _member(axis: Axis, roots: Indices, found: Indices) -> Member:
    labels = roots[axis.labels]
    order = np.argsort(labels, kind="stable")
    low = np.searchsorted(labels[order], found, "left")
    count = int(np.searchsorted(labels[order], found[0], "right") - low[0])
    return Member(axis.tensor, axis.axis, order[low[:, None] + np.arange(count)], axis.role)


def _kinds(trace: Trace, size: int) -> Indices:
    """Return int64 [labels]: equal for roots that appear equally often in all axes and tensors."""
    channels = trace.channels
    roots = channels.roots()
    locks = channels.locks()
    numbers = {reason: number for number, reason in enumerate(dict.fromkeys(locks.values()), 1)}
    kinds = np.zeros(size, np.int64)
    for root, reason in locks.items():
        kinds[root] = numbers[reason]
    found = [roots[axis.labels] for axis in channels.axes.values()]
    found += [channels.positions(tensor)[1] for tensor in _distinct(trace.tensors)]
    for present in found:
        _refine(kinds, present)
    return kinds


def _distinct(tensors: Sequence[Labelled]) -> list[Labelled]:
    """Return tensors without those that share their labels with another."""
    return list({id(tensor.labels): tensor for tensor in tensors if tensor.has_channels}.values())


def _refine(kinds: Indices, present: Indices) -> None:
    """Give new kinds to the roots in an array, so that those of one kind are in it equally often.

    Args:
        kinds: int64 [labels], changed.
        present: int64 [positions]: roots.
    """
    roots, counts = np.unique(present, return_counts=True)
    keys = np.stack([kinds[roots], counts])
    kinds[roots] = kinds.max() + 1 + np.unique(keys, axis=1, return_inverse=True)[1].ravel()
