"""What a rule gets: one call of a layer or operation on labelled tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import tree

from vinedresser.pruning.group import Indices, Role
from vinedresser.pruning.keras_.channels import Channels, Labelled, UnsupportedUse

__all__ = ["Call", "Rule", "channel_axis", "unlabelled"]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a layer or operation.

    Attributes:
        operation: the layer or operation.
        path: its path in the model.
        args: positional arguments, with `Labelled` in place of tensors.
        kwargs: keyword arguments, likewise.
        shapes: shape of each output, without the batch axis.
        channels: the model's channels.
        variables: name of each variable by its id.
        uses: how often each element of a weight is multiplied for one example; rules add to it.
        own_filters: grouped convolutions in which each group reads one channel, by path; rules add
            to it.
    """

    operation: Any
    path: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    shapes: list[tuple[int, ...]]
    channels: Channels
    variables: Mapping[int, str]
    uses: dict[str, int] = field(default_factory=dict)
    own_filters: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Labelled]:
        """All tensors among the arguments."""
        return [
            one for one in tree.flatten((self.args, dict(self.kwargs))) if isinstance(one, Labelled)
        ]

    @property
    def input(self) -> Labelled:
        """The only tensor.

        Raises:
            UnsupportedUse: there are several.
        """
        if len(self.inputs) != 1:
            raise UnsupportedUse(f"{self} is called with {len(self.inputs)} tensors")
        return self.inputs[0]

    @property
    def output(self) -> tuple[int, ...]:
        """Shape of the first output."""
        return self.shapes[0]

    def __str__(self) -> str:
        return f"{self.path} ({type(self.operation).__name__})"

    def axis(self, variable: Any, axis: int, role: Role, kind: str = "filters") -> Indices:
        """Return the labels of an axis of a variable of the layer: int64 [size].

        Args:
            role: what it means to the channels.
            kind: "filters" or "units": what the layer makes.

        Raises:
            UnsupportedUse: it is not a variable of the model, but computed.
        """
        name = self.variables.get(id(variable))
        if name is None:
            raise UnsupportedUse(f"a weight of {self} is not a variable of the model")
        size = variable.shape[axis]
        return self.channels.axis(name, axis, size, role=role, layer=self.path, kind=kind)

    def nameless(self, size: int) -> Indices:
        """Return labels of the layer that stand for no variable, the same for all its calls."""
        return self.channels.axis(
            "/" + self.path, 0, size, role="other", layer=self.path, kind="filters"
        )

    def count(self, variable: Any, times: int) -> None:
        """Add to how often each element of a weight is multiplied for one example."""
        name = self.variables[id(variable)]
        self.uses[name] = self.uses.get(name, 0) + times

    def read(self, variable: Any, axis: int, labels: Indices) -> None:
        """State that an axis of a weight reads channels.

        Args:
            axis: its input axis.
            labels: int64 [size]: the channel that each position reads, 0 for none.
        """
        reason = f"{self} reads it in one call, and what is not a channel in another"
        self.channels.unite(self.axis(variable, axis, "input"), labels, reason)


Rule = Callable[[Call], list[Labelled]]


def unlabelled(shape: tuple[int, ...]) -> Labelled:
    """Return the labels of a tensor without channels."""
    return Labelled(np.zeros((1,) * len(shape), np.int64), shape)


def channel_axis(layer: Any, rank: int) -> int:
    """Return the channel axis of a layer's tensors, without the batch axis.

    Args:
        layer: a layer; without ``data_format``, its channels are last.
    """
    data_format = getattr(layer, "data_format", "channels_last")
    data_format = data_format or keras.config.image_data_format()
    return 0 if data_format == "channels_first" else rank - 1
