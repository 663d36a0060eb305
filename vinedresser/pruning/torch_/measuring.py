"""Measuring Taylor terms of a torch model over batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vinedresser.capture.torch_.forward.input_taylor import taylor_terms
from vinedresser.capture.torch_.names import Names
from vinedresser.errors import PruningError
from vinedresser.pruning.backend import Losses
from vinedresser.pruning.criteria.criterion import Floats, Measured, Measurement
from vinedresser.pruning.group import Group, Role, layer_of

__all__ = ["measure"]


def measure(
    model: nn.Module,
    losses: Losses,
    groups: Iterable[Group],
    measurements: Collection[Measurement],
) -> Measured:
    """Measure what criteria need, in evaluation mode; the model ends as it was.

    Args:
        model: the model.
        losses: yields the losses of batches.
        groups: the groups to be ranked.
        measurements: what to measure.

    Returns:
        One array per batch, for each weight; see `Measurement`.

    Raises:
        PruningError: there is no batch, or a loss or a gradient is not finite.
    """
    if not measurements:
        return {}
    terms: dict[Measurement, dict[str, list[Floats]]] = {one: {} for one in measurements}
    readers = _weights_by_layer(groups, "input") if "input_taylor" in terms else {}
    makers = _weights_by_layer(groups, "filter") if "weight_taylor" in terms else {}
    batch = _Batch(terms.get("input_taylor", {}))
    with _in_evaluation(model), _reading(model, readers, batch):
        count = 0
        for loss in losses(model):
            _backward(loss, count)
            if makers:
                wanted = set().union(*makers.values())
                _add_weights(model, wanted, terms["weight_taylor"])
            batch.end()
            model.zero_grad()
            count += 1
    if not count:
        raise PruningError("losses: yields nothing; the criterion needs the loss of some batches")
    for measurement, tensors in terms.items():
        for name, steps in tensors.items():
            for step, value in enumerate(steps):
                if not np.isfinite(value).all():
                    raise PruningError(
                        f"{measurement} of {name} in batch {step}: not finite; the gradient is NaN "
                        "or infinite"
                    )
    return terms


def _backward(loss: Any, batch: int) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        raise PruningError(
            f"losses: batch {batch}: must be a scalar tensor that depends on the model, not "
            f"{type(loss).__name__}"
        )
    if not torch.isfinite(loss).item():
        raise PruningError(f"losses: batch {batch}: the loss is {loss.item()}")
    loss.backward()


def _weights_by_layer(groups: Iterable[Group], role: Role) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for group in groups:
        for member in group.of_role(role):
            found.setdefault(layer_of(member.tensor), set()).add(member.tensor)
    return found


def _add_weights(model: nn.Module, wanted: set[str], terms: dict[str, list[Floats]]) -> None:
    for one in Names(model).parameters():
        if one.path in wanted:
            # A layer that the batch did not use has no gradient.
            gradient = torch.zeros_like(one.value) if one.value.grad is None else one.value.grad
            terms.setdefault(one.path, []).append(_array(one.taylor_terms(gradient)))


class _Batch:
    """The Taylor terms of inputs in one batch, of all calls of each layer."""

    def __init__(self, terms: dict[str, list[Floats]]) -> None:
        self._terms = terms
        self._calls: dict[str, list[Floats]] = {}

    def before(self, weights: set[str], module: nn.Module, args: tuple[Any, ...]) -> None:
        """Await the gradient of the input of the layer with these weights."""
        if not args or not isinstance(args[0], Tensor) or not args[0].requires_grad:
            return
        value = args[0].detach()
        last = isinstance(module, nn.Linear)

        def arrived(gradient: Tensor) -> None:
            terms = _array(taylor_terms(value, gradient.detach(), last=last))
            for weight in weights:
                self._calls.setdefault(weight, []).append(terms)

        args[0].register_hook(arrived)

    def end(self) -> None:
        """Add what all calls of each layer have measured in the batch."""
        for weight, calls in self._calls.items():
            rows = [one.reshape(-1, one.shape[-1]) for one in calls]
            self._terms.setdefault(weight, []).append(np.concatenate(rows))
        self._calls.clear()


@contextmanager
def _reading(model: nn.Module, readers: Mapping[str, set[str]], batch: _Batch) -> Iterator[None]:
    """Observe the inputs of the layers that read channels."""
    handles = []
    try:
        for path, module in Names(model).modules():
            if weights := readers.get(path):
                handles.append(module.register_forward_pre_hook(partial(batch.before, weights)))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _in_evaluation(model: nn.Module) -> Iterator[None]:
    """Compute gradients in evaluation mode; afterwards modes and gradients are as before."""
    modes = {module: module.training for module in model.modules()}
    before = [(one, one.requires_grad, one.grad) for one in model.parameters()]
    try:
        model.eval()
        for parameter, _, _ in before:
            if parameter.is_floating_point():
                parameter.requires_grad_(True)
            parameter.grad = None
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for parameter, required, gradient in before:
            parameter.requires_grad_(required)
            parameter.grad = gradient


def _array(tensor: Tensor) -> Floats:
    return tensor.detach().to("cpu", torch.float64).numpy()
