"""PyTorch models, as pruning sees them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch

from vinedresser.errors import PruningError
from vinedresser.pruning.group import Group
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.prunable import Outputs, Variant
from vinedresser.pruning.torch_.masking import Masking
from vinedresser.pruning.torch_.resolving import Resolved, resolve
from vinedresser.pruning.torch_.running import (
    RAISED,
    Example,
    arrays,
    copied,
    in_precision,
    named_tensors,
    outputs_of,
    redraw,
    summary,
)
from vinedresser.pruning.torch_.surgery import removed
from vinedresser.pruning.torch_.tracer import trace


class TorchPrunable:
    """A PyTorch model that can be pruned; see `vinedresser.pruning.prunable.Prunable`.

    Its channels are found by running it once on the example; it is copied for that and stays as it
    is. What passes an operator that is not supported is locked, with the reason.

    Args:
        model: the model, on any device, in training or evaluation mode.
        example: a tensor, a tuple of arguments or a dict of keyword arguments, on its device.

    Raises:
        PruningError: the model does not run on the example, or no layer of it makes channels.
    """

    def __init__(self, model: torch.nn.Module, example: object) -> None:
        self.model = model
        self._example = Example.of(example)
        if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
            raise PruningError(
                f"the model is of type {type(model).__name__}; it must be a torch.nn.Module, as it "
                "is before torch.jit or torch.compile"
            )
        if any(torch.nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
            raise PruningError("the model has uninitialised parameters; run it once")
        self._resolved: Resolved = resolve(model, self._example)
        if not self.groups:
            raise PruningError(
                "the model has nothing to prune: no convolution or linear layer of it runs"
            )

    @property
    def groups(self) -> tuple[Group, ...]:
        """See `Prunable.groups`."""
        return self._resolved.grouping.groups

    @cached_property
    def parameters(self) -> frozenset[str]:
        """See `Prunable.parameters`."""
        return frozenset(name for name, _ in self.model.named_parameters())

    @property
    def uses(self) -> Mapping[str, int]:
        """See `Prunable.uses`."""
        ctx = self._resolved.ctx
        return {name: times // ctx.batch for name, times in ctx.uses.items()}

    @property
    def item_sizes(self) -> Mapping[str, int]:
        """See `Prunable.item_sizes`."""
        return {name: one.element_size() for name, one in named_tensors(self.model).items()}

    def tensors(self) -> Mapping[str, np.ndarray]:
        """See `Prunable.tensors`."""
        tensors = named_tensors(self.model)
        return dict(zip(tensors, arrays(list(tensors.values())), strict=True))

    def attributes(self, channels: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """See `Prunable.attributes`."""
        return self._resolved.attributes(channels)

    def removed(self, plan: Plan) -> torch.nn.Module:
        """See `Prunable.removed`."""
        return removed(self.model, plan)

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Prunable.notes`."""
        return self._resolved.choices.passes.notes

    def outputs(self, model: torch.nn.Module) -> Outputs:
        """Return what a model computes for the example, output by output, in all passes.

        Raises:
            PruningError: it does not run on the example.
        """
        return self._outputs(copied(model, {}), self._example)

    def compared(self, plan: Plan, variant: Variant) -> tuple[Outputs, Outputs]:
        """See `Prunable.compared`."""
        dtype = torch.float32 if variant == "float32" else torch.float64
        example = self._example.to(dtype)
        original = in_precision(self.model, dtype)
        if variant == "redrawn":
            redraw(original)
        masking = Masking(self._resolved.grouping.removed_labels(_channels(plan)))
        masked = arrays(trace(original, example, self._resolved.choices, masking)[1])
        return masked, self._outputs(removed(original, plan), example)

    def _outputs(self, model: torch.nn.Module, example: Example) -> Outputs:
        try:
            return arrays(outputs_of(model, example, self._resolved.choices.passes.runs))
        except RAISED as error:
            raise PruningError(f"the pruned model does not run: {summary(error)}") from error


def _channels(plan: Plan) -> dict[str, tuple[int, ...]]:
    return {name: tuple(numbers) for name, numbers in plan.channels.items()}
