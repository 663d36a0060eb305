"""Pruning of PyTorch models behind the interface that all frameworks share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from vinedresser.errors import PruningError
from vinedresser.objects.files import replacing
from vinedresser.pruning.backend import Losses
from vinedresser.pruning.criteria.criterion import Measured, Measurement
from vinedresser.pruning.group import Group
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.prunable import Prunable
from vinedresser.pruning.torch_.measuring import losses_of, measure
from vinedresser.pruning.torch_.prunable import TorchPrunable
from vinedresser.pruning.torch_.running import RAISED, Example, copied, summary
from vinedresser.pruning.torch_.surgery import removed
from vinedresser.pruning.weights import METADATA, add_checksum, check_shapes, reading

__all__ = ["TorchBackend"]


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
        return measure(model, losses, [*groups], [*measurements])

    def losses_of(self, model: Any, losses: Losses) -> list[float]:
        """See `Backend.losses_of`."""
        return losses_of(model, losses)

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
