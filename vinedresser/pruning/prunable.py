"""What pruning needs of a framework: the one interface between it and PyTorch or Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vinedresser.pruning.group import Group
from vinedresser.pruning.plan import Plan

__all__ = ["Prunable"]

Model = TypeVar("Model")


class Prunable(Protocol[Model]):
    """A model, an example input, and what is known of its channels.

    `vinedresser.pruning.torch_.TorchPrunable` and `vinedresser.pruning.keras_.KerasPrunable` have
    it. Both are created with ``(model, example)``; the model is not changed.
    """

    model: Model

    @property
    def groups(self) -> tuple[Group, ...]:
        """All groups, in the order in which the model runs them; locked ones with the reason."""

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the parameters; the other tensors are buffers."""

    @property
    def uses(self) -> Mapping[str, int]:
        """How often each element of a weight is multiplied for one example; see `cost`."""

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Return parameters and buffers by name, as arrays of the host."""

    def conv_groups(self, channels: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Return the new number of convolution groups of each layer where it changes.

        Args:
            channels: channels to remove by group.
        """

    def removed(self, plan: Plan) -> Model:
        """Return a new model without the plan's channels; ``model`` stays as it is.

        Raises:
            PruningError: the plan is for another architecture.
        """

    def outputs(self, model: Model) -> list[NDArray[np.floating[Any]]]:
        """Return what a model computes for the example, in evaluation mode, output by output."""

    def masked_outputs(self, plan: Plan) -> list[NDArray[np.floating[Any]]]:
        """Return what the unpruned model computes if nothing reads the plan's channels.

        This is the reference for the pruned model, so it is computed without its surgery.
        """
