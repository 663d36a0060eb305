"""Pruning of PyTorch models behind the interface that all frameworks share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vinedresser.errors import PruningError
from vinedresser.frameworks.torch_.names import Names
from vinedresser.frameworks.torch_.taylor import taylor_terms
from vinedresser.objects.files import replacing
from vinedresser.pruning.backend import Losses
from vinedresser.pruning.criteria.criterion import Floats, Measured, Measurement
from vinedresser.pruning.group import Group
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.prunable import Prunable
from vinedresser.pruning.taylor_terms import TaylorTerms, check_loss, weights_by_layer
from vinedresser.pruning.torch_.prunable import TorchPrunable
from vinedresser.pruning.torch_.running import RAISED, Example, copied, summary
from vinedresser.pruning.torch_.surgery import removed
from vinedresser.pruning.weights import METADATA, add_checksum, check_shapes, reading


class TorchBackend:
    """The `vinedresser.pruning.backend.Backend` of PyTorch."""

    def prunable(self, model: Any, example: Any) -> Prunable[Any]:
        """See `Backend.prunable`."""
        return TorchPrunable(model, example)

    def removed(self, model: Any, plan: Plan) -> Any:
        """See `Backend.removed`."""
        return removed(model, plan)

    def measure(
        self,
        model: Any,
        losses: Losses,
        groups: Iterable[Group],
        measurements: Iterable[Measurement],
    ) -> Measured:
        """See `Backend.measure`."""
        wanted, every = [*measurements], [*groups]
        if not wanted:
            return {}
        terms = TaylorTerms(wanted)
        readers = weights_by_layer(every, "input") if "input_taylor" in wanted else {}
        makers = weights_by_layer(every, "filter") if "weight_taylor" in wanted else {}
        weights = set().union(*makers.values())
        with _in_evaluation(model), _reading(model, readers, terms):
            for loss in losses(model):
                _backward(loss, terms.batches)
                _add_weights(model, weights, terms)
                terms.end_batch()
                model.zero_grad()
        return terms.finish()

    def losses_of(self, model: Any, losses: Losses) -> list[float]:
        """See `Backend.losses_of`."""
        # The generator of torch begins with the same state each time, so shuffled batches are the
        # same.
        with _in_evaluation(model), torch.random.fork_rng(devices=[]):
            return [_scalar(loss, batch).item() for batch, loss in enumerate(losses(model))]

    def forward_timer(self, model: Any, example: Any) -> Callable[[], float]:
        """See `Backend.forward_timer`."""
        copy_of = copied(model, {})
        given = Example.of(example)
        tensors = [*given.tensors, *copy_of.parameters(), *copy_of.buffers()]
        devices = {tensor.device for tensor in tensors if tensor.device.type != "cpu"}
        forked = [device for device in devices if device.type == "cuda"]

        def timed() -> float:
            fresh = given.fresh()
            with torch.random.fork_rng(devices=forked), torch.inference_mode():
                _synchronize(devices)
                start = time.perf_counter()
                try:
                    copy_of(*fresh.args, **fresh.kwargs)
                except RAISED as error:
                    raise PruningError(
                        f"the model does not run on the example: {summary(error)}"
                    ) from error
                _synchronize(devices)
                return time.perf_counter() - start

        return timed

    def write_weights(self, model: Any, path: Path) -> None:
        """See `Backend.write_weights`."""
        tensors: dict[str, torch.Tensor] = {}
        for name, value in model.state_dict().items():
            if not isinstance(value, torch.Tensor):
                raise PruningError(f"{name}: {type(value).__name__}: only tensors can be saved")
            # A clone, since safetensors rejects tensors that share memory.
            tensors[name] = value.detach().cpu().contiguous().clone()
        with replacing(path) as part:
            save_file(tensors, part, metadata=METADATA)
            add_checksum(part)

    def read_weights(self, model: Any, path: Path) -> None:
        """See `Backend.read_weights`."""
        with reading(path) as opened:
            tensors = load_file(opened)
        wanted = {name: tuple(one.shape) for name, one in model.state_dict().items()}
        check_shapes(path, {name: tuple(one.shape) for name, one in tensors.items()}, wanted)
        model.load_state_dict(tensors)


def _synchronize(devices: Iterable[torch.device]) -> None:
    """Wait for accelerators, which compute while Python continues."""
    for device in devices:
        torch.accelerator.synchronize(device)


def _scalar(loss: Any, batch: int) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise PruningError(
            f"losses: batch {batch}: must be a scalar tensor that depends on the model, not "
            f"{type(loss).__name__}"
        )
    return loss


def _backward(loss: Any, batch: int) -> None:
    scalar = _scalar(loss, batch)
    if not scalar.requires_grad:
        raise PruningError(f"losses: batch {batch}: the loss does not depend on the model")
    check_loss(scalar.item(), batch)
    scalar.backward()


def _add_weights(model: nn.Module, wanted: set[str], terms: TaylorTerms) -> None:
    for parameter in Names(model).parameters():
        if parameter.path in wanted:
            # A layer that the batch did not use has no gradient.
            gradient = (
                torch.zeros_like(parameter.value)
                if parameter.value.grad is None
                else parameter.value.grad
            )
            terms.add_weight(parameter.path, _array(parameter.taylor_terms(gradient)))


def _before(
    terms: TaylorTerms, weights: set[str], module: nn.Module, args: tuple[Any, ...]
) -> None:
    """Await the gradient of the input of the layer with these weights."""
    if not args or not isinstance(args[0], Tensor) or not args[0].requires_grad:
        return
    value = args[0].detach()
    last = isinstance(module, nn.Linear)

    def arrived(gradient: Tensor) -> None:
        terms.add_input(weights, _array(taylor_terms(value, gradient.detach(), last=last)))

    args[0].register_hook(arrived)


@contextmanager
def _reading(
    model: nn.Module, readers: Mapping[str, set[str]], terms: TaylorTerms
) -> Iterator[None]:
    """Observe the inputs of the layers that read channels."""
    handles = []
    try:
        for path, module in Names(model).modules():
            if weights := readers.get(path):
                handles.append(module.register_forward_pre_hook(partial(_before, terms, weights)))
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
