"""Giving a model its input so that gradients and pixels can be followed from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.axes import Axes, Role
from vinedresser.explain.saliency.result import TOLERANCES
from vinedresser.explain.saliency.torch_.axes import axes_of_input, axes_of_tokens
from vinedresser.explain.saliency.torch_.tracer import Tracer

__all__ = ["PRECISIONS", "Entry", "check_inputs", "entered", "is_tokens", "pixels_of"]

# Of inputs and outputs, with the largest completeness error of a complete decomposition.
PRECISIONS = {
    torch.float32: TOLERANCES["float32"],
    torch.float64: TOLERANCES["float64"],
}
_IDS = (torch.int64, torch.int32)


class Entry(NamedTuple):
    """The input of a model.

    Attributes:
        given: the argument of the model.
        leaves: tensors with respect to which gradients are computed: the input, or the embeddings
            of token ids once the model has run.
        axes: those of the leaves.
    """

    given: torch.Tensor
    leaves: list[torch.Tensor]
    axes: Axes


def is_tokens(inputs: torch.Tensor) -> bool:
    """Return whether inputs are token ids."""
    return inputs.dtype in _IDS


def pixels_of(inputs: torch.Tensor, *, channels_last: bool) -> dict[Role, int]:
    """Return the roles of the dimensions of a map, with their lengths; none if there is no map."""
    if is_tokens(inputs):
        return {"row": inputs.shape[1]}
    axes = axes_of_input(inputs, channels_last=channels_last)
    return {role: axis.size for role, axis in axes.items() if role != "example"}


def check_inputs(inputs: torch.Tensor) -> None:
    """Check inputs.

    Raises:
        SaliencyError: they cannot be explained.
    """
    if not isinstance(inputs, torch.Tensor) or inputs.dtype not in (*PRECISIONS, *_IDS):
        kind = inputs.dtype if isinstance(inputs, torch.Tensor) else type(inputs).__name__
        raise SaliencyError(
            f"inputs are {kind}; they must be a float32 or float64 tensor, or int64 token ids"
        )
    if inputs.ndim < 2 or inputs.numel() == 0:
        raise SaliencyError(
            f"inputs have the shape {list(inputs.shape)}; they must be [batch, ...] and not empty"
        )
    if is_tokens(inputs) and inputs.ndim != 2:
        raise SaliencyError(
            f"inputs are integers with the shape {list(inputs.shape)}; token ids must be "
            "[batch, tokens], and other inputs floating-point numbers"
        )
    finite = inputs.isfinite().flatten(1).all(1)
    if not finite.all():
        place = int((~finite).nonzero()[0])
        raise SaliencyError(f"inputs[{place}] contains NaN or infinity")


@contextmanager
def entered(
    model: torch.nn.Module, inputs: torch.Tensor, tracer: Tracer, *, channels_last: bool
) -> Iterator[Entry]:
    """Prepare an input for a run of the model, which takes place inside.

    Args:
        model: the model; token ids get their gradients at the outputs of its `nn.Embedding`s.
        inputs: float32 or float64 [batch, ...], or token ids [batch, tokens].
        tracer: follows the input.
        channels_last: images are [batch, H, W, C].

    Raises:
        SaliencyError: the model did not look up the embeddings of the token ids.
    """
    if not is_tokens(inputs):
        leaf = inputs.detach().clone().requires_grad_()
        # The model may change its input in place, but not a leaf.
        given = leaf.clone()
        axes = axes_of_input(given, channels_last=channels_last)
        tracer.start(given, axes)
        yield Entry(given, [leaf], axes)
        return
    ids = inputs.detach().clone().long()
    axes = axes_of_tokens(ids)
    leaves: list[torch.Tensor] = []

    def enter(_: Any, args: Any, kwargs: Any, output: torch.Tensor) -> torch.Tensor | None:
        index = args[0] if args else kwargs["input"]
        if index.shape != ids.shape or index.untyped_storage()._cdata != ids_storage:
            return None
        leaf = output.detach().clone().requires_grad_()
        leaves.append(leaf)
        tracer.start(leaf, axes)
        return leaf.clone()

    ids_storage = ids.untyped_storage()._cdata
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                stack.enter_context(module.register_forward_hook(enter, with_kwargs=True))
        yield Entry(ids, leaves, axes)
    if not leaves:
        raise SaliencyError(
            "inputs are integers, and no nn.Embedding of the model is called with them: explain "
            "the part of the model after its embeddings"
        )
