"""What a criterion gets and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import PruningError
from vinedresser.pruning.group import Group, Member, Role

__all__ = ["Criterion", "Floats", "GroupTensors", "Measured", "Measurement"]

Floats = NDArray[np.float64]

Measurement = Literal["input_taylor", "weight_taylor"]
"""What can be measured over batches, for criteria that need more than weights.

- "input_taylor": per step and reader of a channel, float64 [batch, channels of the reader]: the
  mean over space of the reader's input times the gradient of the loss with respect to it.
- "weight_taylor": per step and filter weight, float64 [channels of the weight]: the sum over the
  filter of weight times gradient.
"""


Measured = Mapping[Measurement, Mapping[str, list[Floats]]]
"""What was measured, by measurement and tensor name: one array per step."""


@dataclass(frozen=True)
class GroupTensors:
    """A group with its tensors and what was measured of it.

    Attributes:
        tensors: the model's parameters and buffers by name.
        measured: what was measured of the model.
    """

    group: Group
    tensors: Mapping[str, NDArray[Any]]
    measured: Measured = field(default_factory=dict)

    def rows(self, *roles: Role) -> list[Floats]:
        """Return float64 [channels, elements] for each member with one of the roles.

        A row holds all elements of the tensor that belong to the channel. The arrays are copies,
        which the caller may change.
        """
        return [self._rows(member) for member in self.group.of_role(*roles)]

    def filters(self) -> list[Floats]:
        """Return float64 [channels, elements] for each weight that makes the channels.

        Raises:
            PruningError: there is none.
        """
        found = self.rows("filter")
        if not found:
            raise PruningError(f"{self.group.name}: no weight makes its channels")
        return found

    def steps(self, measurement: Measurement, role: Role) -> list[list[Floats]]:
        """Return what was measured, for each member with a role: one array per step.

        The last axis of an array is the group's channels; positions of one channel are averaged.

        Raises:
            PruningError: it was measured for none of the members.
        """
        known = self.measured.get(measurement, {})
        members = [one for one in self.group.of_role(role) if one.tensor in known]
        if not members:
            raise PruningError(
                f"{self.group.name}: {measurement} was not measured; its tensors are "
                f"{', '.join(one.tensor for one in self.group.of_role(role)) or 'none'}"
            )
        return [
            [self._of_channels(step, member) for step in known[member.tensor]] for member in members
        ]

    def _of_channels(self, step: Floats, member: Member) -> Floats:
        """Return float64 [..., channels] from float64 [..., channels of the member's layer]."""
        length = self.tensors[member.tensor].shape[member.axis]
        # A grouped convolution reads several channels with each index of its weight's axis.
        if step.shape[-1] % length:
            raise PruningError(
                f"{member.tensor}: was measured with {step.shape[-1]} channels and has {length}; "
                "measure the same model"
            )
        folded = step.reshape(*step.shape[:-1], -1, length).mean(axis=-2)
        mean: Floats = folded[..., member.indices].mean(axis=-1)
        return mean

    def _rows(self, member: Member) -> Floats:
        taken = np.moveaxis(self.tensors[member.tensor], member.axis, 0)[member.indices]
        return taken.reshape(self.group.size, -1).astype(np.float64)


class Criterion(ABC):
    """Scores the channels of a group; the lowest scores are removed first.

    Scores are compared over all groups, so a criterion whose scores depend on the size or scale of
    a layer normalises them within the group.

    Attributes:
        name: its name in prune.toml.
        measurements: what has to be measured for it.
    """

    name: ClassVar[str]
    measurements: ClassVar[tuple[Measurement, ...]] = ()

    @abstractmethod
    def score(self, group: GroupTensors) -> Floats:
        """Return float64 [channels], finite.

        Raises:
            PruningError: the group lacks what the criterion needs.
        """
