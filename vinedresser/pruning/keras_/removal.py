"""What a plan removes, in terms of a model's labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vinedresser.errors import PruningError
from vinedresser.pruning.group import Indices
from vinedresser.pruning.keras_.channels import Labelled
from vinedresser.pruning.keras_.grouping import Grouped
from vinedresser.pruning.keras_.tracing import Trace
from vinedresser.pruning.plan import Plan, check_fits

__all__ = ["Removal", "removal"]


@dataclass(frozen=True, eq=False)
class Removal:
    """What a plan removes.

    Attributes:
        trace: the model's labels.
        gone: bool [labels]: whether the root of a label is removed; False for 0.
        tensors: removed indices by variable and axis.
    """

    trace: Trace
    gone: Indices
    tensors: dict[str, dict[int, list[int]]]

    @classmethod
    def of_nothing(cls, trace: Trace) -> Removal:
        """Return the removal of no channel."""
        return cls(trace, np.zeros(len(trace.channels.roots()), bool), {})

    def mask(self, tensor: Labelled) -> Indices:
        """Return bool, broadcastable to the tensor's shape: whether an element is removed."""
        return self.gone[self.trace.channels.roots()[tensor.labels]]

    def positions(self, tensor: Labelled) -> tuple[int, Indices] | None:
        """Return an axis and the removed positions on it; None if nothing is removed."""
        axis, roots = self.trace.channels.positions(tensor)
        found = np.flatnonzero(self.gone[roots])
        return (axis, found) if axis is not None and len(found) else None

    def shape(self, tensor: Labelled) -> tuple[int, ...]:
        """Return the shape that remains of a tensor."""
        sizes = list(tensor.shape)
        found = self.positions(tensor)
        if found is not None:
            sizes[found[0]] -= len(found[1])
        return tuple(sizes)


def removal(
    trace: Trace, grouped: Grouped, plan: Plan, shapes: dict[str, tuple[int, ...]]
) -> Removal:
    """Return what a plan removes.

    Args:
        trace: the model's labels.
        shapes: shape of each variable by name.

    Raises:
        PruningError: the plan is for another architecture.
    """
    check_fits(plan, shapes)
    groups = {group.name: group for group in grouped.groups}
    gone = np.zeros(len(trace.channels.roots()), bool)
    for name, numbers in plan.channels.items():
        if name not in groups or groups[name].locked or max(numbers) >= groups[name].size:
            raise PruningError(
                f"the plan removes channels of {name}, which the model does not allow"
            )
        gone[grouped.roots[name][numbers]] = True
    tensors: dict[str, dict[int, list[int]]] = {}
    roots = trace.channels.roots()
    for axis in trace.channels.axes.values():
        found = np.flatnonzero(gone[roots[axis.labels]]).tolist()
        if found and axis.tensor:
            tensors.setdefault(axis.tensor, {})[axis.axis] = found
    planned = {
        name: {int(axis): indices for axis, indices in axes.items()}
        for name, axes in plan.tensors.items()
    }
    if tensors != planned:
        odd = next(
            name for name in {**tensors, **planned} if tensors.get(name) != planned.get(name)
        )
        raise PruningError(
            f"the plan removes other indices of {odd} than its channels have; make the plan anew"
        )
    return Removal(trace, gone, tensors)
