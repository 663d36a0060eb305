"""Groups of channels that can only be removed together, and what each channel is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Group", "Indices", "Kind", "Member", "Role", "layer_of"]

Indices = NDArray[np.int64]

Kind = Literal["filters", "units", "heads"]
"""Channels of a convolution, of a linear layer, or heads of attention."""

Role = Literal["filter", "bias", "scale", "shift", "running", "input", "other"]
"""What an axis of a tensor means to a channel.

- "filter": the output axis of a convolution's or linear layer's weight; it makes the channel.
- "bias": the bias beside it.
- "scale", "shift": gamma and beta of a normalisation.
- "running": a running mean or variance.
- "input": the input axis of a weight that reads the channel.
- "other": any other parameter or buffer with one value (or slice) per channel.
"""


@dataclass(frozen=True, eq=False)
class Member:
    """An axis of one tensor along which a group's channels lie.

    Attributes:
        tensor: name of the parameter or buffer, as in the model's state ("layer1.0.conv1.weight").
        axis: the axis, counted from 0.
        indices: int64 [channels, positions]: where each channel lies on the axis. There are several
            positions where a channel was flattened (one per pixel) or is read more than once.
        role: what the axis means.
    """

    tensor: str
    axis: int
    indices: Indices
    role: Role


@dataclass(frozen=True, eq=False)
class Group:
    """Channels of one kind; each can be removed alone, with all that is tied to it.

    A **filter**, wherever filters are counted, is one channel of a group: the output channel of a
    convolution with all output channels of other layers that are tied to it (by a residual add, for
    example). It is counted once.

    Attributes:
        name: name of the first layer that makes the channels ("layer1.0.conv1"); unique in a model.
        kind: by what they are made.
        size: number of channels.
        members: every axis that shrinks with the group.
        locked: why no channel can be removed ("is an output of the model"); "" if they can.
    """

    name: str
    kind: Kind
    size: int
    members: tuple[Member, ...]
    locked: str = ""

    def of_role(self, *roles: Role) -> tuple[Member, ...]:
        """Return the members with one of the roles, in order."""
        return tuple(member for member in self.members if member.role in roles)


def layer_of(tensor: str) -> str:
    """Return the layer of a weight: "block.conv" of "block.conv.weight".

    A parametrized weight ("block.conv.parametrizations.weight.original0") belongs to the layer that
    computes it.

    Args:
        tensor: name of the parameter.
    """
    layer, parametrized, _ = tensor.partition(".parametrizations.")
    return layer if parametrized else tensor.rpartition(".")[0]
