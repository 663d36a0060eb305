"""Which channel each element of a tensor belongs to, and which channels can only go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinedresser.pruning.group import Indices, Role

__all__ = ["Axis", "Channels", "Labelled", "UnsupportedUse", "labelled"]


class UnsupportedUse(Exception):
    """An operation uses channels in a way that no rule describes; the text says which."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """The labels of a tensor without its batch axis.

    Attributes:
        labels: int64, of the tensor's rank; the label of each element, 0 for none. An axis along
            which labels do not change has length 1.
    """

    labels: Indices
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def has_channels(self) -> bool:
        """Whether any element belongs to a channel."""
        return bool(self.labels.any())

    def full(self) -> Indices:
        """Return the labels in the tensor's shape, as a read-only view."""
        return np.broadcast_to(self.labels, self.shape)


def labelled(labels: Indices, shape: Sequence[int]) -> Labelled:
    """Return labels without the axes along which they do not change.

    Args:
        labels: int64, broadcastable to the shape and of the same rank.
        shape: the shape of the tensor.
    """
    for axis, size in enumerate(labels.shape):
        first = labels.take([0], axis) if size > 1 else labels
        if size > 1 and (labels == first).all():
            labels = first
    return Labelled(labels, tuple(shape))


@dataclass(frozen=True, eq=False)
class Axis:
    """An axis of a variable along which channels lie.

    Attributes:
        tensor: name of the variable; "" for none, such as a normalisation without parameters.
        axis: the axis, counted from 0.
        role: what it means to the channels; see `Role`.
        labels: int64 [size]; each position has its own label.
        layer: path of the layer that uses it first.
        kind: "filters" or "units": what the layer makes.
    """

    tensor: str
    axis: int
    role: Role
    labels: Indices
    layer: str
    kind: str


class Channels:
    """Labels of channels; those that were united can only be removed together.

    Attributes:
        axes: axes by a name of the tensor and the axis, in order of their first use.
    """

    def __init__(self) -> None:
        self.axes: dict[tuple[str, int], Axis] = {}
        self._parents: Indices = np.zeros(1, np.int64)
        self._resolved = True
        self._locks: dict[int, str] = {}

    def axis(self, key: str, axis: int, size: int, *, role: Role, layer: str, kind: str) -> Indices:
        """Return the labels of an axis of a variable; a second call returns the same.

        Args:
            key: name of the variable; one that starts with "/" for none.
            size: its length.
            role: what it means to the channels.
            layer: path of the layer.
            kind: "filters" or "units".
        """
        if (key, axis) not in self.axes:
            labels = np.arange(len(self._parents), len(self._parents) + size)
            self._parents = np.concatenate([self._parents, labels])
            tensor = "" if key.startswith("/") else key
            self.axes[key, axis] = Axis(tensor, axis, role, labels, layer, kind)
        return self.axes[key, axis].labels

    def roots(self) -> Indices:
        """Return int64 [labels]: the smallest label that each label is united with."""
        while not self._resolved:
            above = self._parents[self._parents]
            self._resolved = bool((above == self._parents).all())
            self._parents = above
        return self._parents

    def unite(self, first: Indices, second: Indices, reason: str) -> None:
        """Unite labels of arrays of broadcastable shapes, element by element.

        Args:
            first: int64 labels.
            second: int64 labels.
            reason: why a channel is locked that is united with what is not a channel.
        """
        first, second = np.broadcast_arrays(first, second)
        self.lock(np.where((first == 0) != (second == 0), first + second, 0), reason)
        roots = self.roots()
        pairs = np.stack([roots[first].ravel(), roots[second].ravel()], axis=1)
        pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & (pairs > 0).all(axis=1)]
        for one, other in np.unique(pairs, axis=0).tolist():
            self._join(one, other)

    def _join(self, one: int, other: int) -> None:
        low, high = sorted((self._root(one), self._root(other)))
        if low != high:
            self._parents[high] = low
            self._resolved = False

    def _root(self, label: int) -> int:
        while self._parents[label] != label:
            label = int(self._parents[label])
        return label

    def lock(self, labels: Indices, reason: str) -> None:
        """Lock all channels among labels; the first reason counts."""
        for label in np.unique(labels).tolist():
            if label:
                self._locks.setdefault(label, reason)

    def lock_outputs(self, labels: Indices) -> None:
        """Lock the channels of a model's outputs; this reason counts before all others."""
        outputs = dict.fromkeys(np.unique(labels[labels > 0]).tolist(), "is an output of the model")
        self._locks = {**outputs, **self._locks, **outputs}

    def locks(self) -> dict[int, str]:
        """Return the reason by root of the locked channels; the first given counts."""
        roots = self.roots()
        found: dict[int, str] = {}
        for label, reason in self._locks.items():
            found.setdefault(int(roots[label]), reason)
        return found

    def varying(self, tensor: Labelled) -> list[int]:
        """Return the axes along which the channel changes."""
        roots = self.roots()[tensor.labels]
        return [
            axis
            for axis, size in enumerate(roots.shape)
            if size > 1 and bool((roots != roots.take([0], axis)).any())
        ]

    def merged(self, tensor: Labelled, axes: Sequence[int], reason: str) -> Labelled:
        """Return a tensor's labels with those along axes united, if other axes tell them apart.

        Args:
            axes: axes along which positions are not told apart; their size of labels becomes 1.
            reason: what treats them alike.

        Raises:
            UnsupportedUse: the channels lie along these axes only.
        """
        varying = self.varying(tensor)
        if any(axis in varying for axis in axes):
            if all(axis in axes for axis in varying):
                raise UnsupportedUse(reason)
            for axis in axes:
                self.unite(tensor.labels, tensor.labels.take([0], axis), reason)
        labels = tensor.labels
        for axis in axes:
            labels = labels.take([0], axis)
        return Labelled(labels, tensor.shape)

    def along(self, tensor: Labelled, axis: int, reason: str) -> Indices:
        """Return the label of each position on an axis: int64 [size], 0 where there is none.

        Args:
            axis: the axis that an operation takes for the channels.
            reason: what the operation does, for the lock of channels along other axes.

        Raises:
            UnsupportedUse: the channels lie along other axes.
        """
        others = [one for one in range(tensor.rank) if one != axis]
        varying = self.varying(tensor)
        size = tensor.shape[axis]
        if varying and axis not in varying:
            raise UnsupportedUse(reason)
        merged = self.merged(tensor, others, reason)
        return np.broadcast_to(merged.labels.reshape(-1), (size,))

    def make_rectangular(self, tensors: Sequence[Labelled]) -> None:
        """Unite channels until those of each tensor lie along one axis, the last of several."""
        changed = True
        while changed:
            changed = False
            for tensor in tensors:
                for axis in self.varying(tensor)[:-1]:
                    self.unite(tensor.labels, tensor.labels.take([0], axis), "")
                    changed = True

    def positions(self, tensor: Labelled) -> tuple[int | None, Indices]:
        """Return the axis along which the channels lie (None: one channel) and the roots on it.

        The roots are int64 [size of the axis]; for None, int64 [1].
        """
        varying = self.varying(tensor)
        roots = self.roots()[tensor.labels]
        if not varying:
            return None, roots.ravel()[:1]
        axis = varying[-1]
        return axis, np.moveaxis(roots, axis, 0).reshape(roots.shape[axis], -1)[:, 0]
