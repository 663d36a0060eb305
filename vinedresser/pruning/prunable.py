"""What pruning needs of a framework: the one interface between it and PyTorch or Keras."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeVar

from numpy.typing import NDArray

from vinedresser.pruning.group import Group
from vinedresser.pruning.plan import Plan

__all__ = ["Outputs", "Prunable", "Variant"]

Model = TypeVar("Model")

Outputs = list[NDArray[Any]]

Variant = Literal["float32", "float64", "redrawn"]
"""In which form models are compared.

- "float32", "float64": with their own weights, in this precision.
- "redrawn": in float64, with random weights, so that no scale of 0 and no dead channel hides a
  difference.
"""


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

    @property
    def item_sizes(self) -> Mapping[str, int]:
        """Bytes of an element of each parameter and buffer, by name."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the model was not seen, one sentence each."""

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Return parameters and buffers by name, as arrays of the host."""

    def attributes(self, channels: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Return the new values of integer attributes of modules, where they change.

        A depthwise convolution has as many groups as channels ("block.depthwise.groups"), and an
        attention block may know its number of heads ("block.attention.heads").

        Args:
            channels: channels to remove by group.
        """

    def removed(self, plan: Plan) -> Model:
        """Return a new model without the plan's channels; ``model`` stays as it is.

        Raises:
            PruningError: the plan is for another architecture.
        """

    def outputs(self, model: Model) -> Outputs:
        """Return what a model computes for the example, output by output.

        First in evaluation mode, then in training mode if it computes something else there.

        Raises:
            PruningError: it does not run on the example.
        """

    def compared(self, plan: Plan, variant: Variant) -> tuple[Outputs, Outputs]:
        """Return outputs of the masked original and of the model that the plan prunes.

        The masked original is the unpruned model in which nothing reads the plan's channels. It is
        the reference, so it is computed without the surgery.

        Args:
            plan: what is removed.
            variant: in which form.

        Raises:
            PruningError: the pruned model does not run on the example.
        """
