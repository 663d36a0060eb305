"""The masked original, made by hand from a plan: it knows layers only, and no labels."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parametrize

from vinedresser.pruning.plan import Plan, architecture_digest, make_plan
from vinedresser.pruning.torch_ import TorchPrunable

__all__ = ["masked_reference", "plan_of", "random_weights", "results", "share_removed"]


def plan_of(prunable: TorchPrunable, share: float = 0.25, seed: int = 0) -> Plan:
    """Return a plan that removes a share of each open group, drawn at random."""
    random = np.random.default_rng(seed)
    channels = {
        group.name: tuple(
            sorted(
                random.choice(group.size, max(1, int(group.size * share)), replace=False).tolist()
            )
        )
        for group in prunable.groups
        if not group.locked and group.size > 1
    }
    return make_plan(
        channels,
        {group.name: group for group in prunable.groups},
        architecture=architecture_digest(
            {name: tensor.shape for name, tensor in prunable.tensors().items()}
        ),
        criterion="random",
        scores={},
        attributes=prunable.attributes(channels),
    )


def share_removed(prunable: TorchPrunable, plan: Plan) -> float:
    """Return the share of channels that a plan removes, without those of the outputs."""
    free = sum(group.size for group in prunable.groups if "output of the model" not in group.locked)
    return plan.count / max(1, free)


def random_weights(model: nn.Module, seed: int) -> nn.Module:
    """Return a copy of a model in float64 with random weights and statistics."""
    model = copy.deepcopy(model).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point():
            drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            fan = max(1, tensor[0].numel()) if tensor.ndim > 1 else 4
            tensor.data = drawn.abs() + 0.5 if "var" in name else drawn / fan**0.5
    return model


def results(model: nn.Module, example: Tensor) -> list[NDArray[Any]]:
    """Return what a model computes, output by output."""
    with torch.no_grad():
        result = model(example)
    if isinstance(result, Tensor):
        return [result.numpy()]
    values = result.values() if isinstance(result, dict) else result
    return [value.numpy() for value in values]


def masked_reference(model: nn.Module, plan: Plan, example: Tensor) -> list[NDArray[Any]]:
    """Return what the original computes if nothing reads a plan's channels.

    Weights that read removed channels are set to 0; where a layer's weight is parametrised, its
    input is set to 0 instead. Layer and group norm are computed over the rest.

    Args:
        model: the original, in float64.
        plan: what is removed.
        example: its argument, float64.
    """
    model = copy.deepcopy(model).eval()
    modules = dict(model.named_modules())
    for name, axes in plan.tensors.items():
        path = name.partition(".parametrizations.")[0].rpartition(".")[0]
        if ".parametrizations." in name:
            path = name.partition(".parametrizations.")[0]
        module = modules[path]
        if isinstance(module, nn.LayerNorm | nn.GroupNorm) and name.endswith("weight"):
            if getattr(module, "num_groups", 1) != len(module.weight):
                module.register_forward_hook(_norm_of_rest(axes["0"]))
        elif parametrize.is_parametrized(module) and name.endswith(("original1", "original")):
            if "1" in axes:
                module.register_forward_pre_hook(_without_input(axes["1"]))
        else:
            _forget(module, name, model.state_dict()[name], axes)
    return results(model, example)


def _forget(module: nn.Module, name: str, tensor: Tensor, axes: dict[str, list[int]]) -> None:
    """Set the slices of a weight to 0 that read removed channels."""
    depthwise = isinstance(module, nn.Conv2d) and tensor.ndim > 1 and tensor.shape[1] == 1
    if tensor.ndim < 2 or depthwise:
        return
    reading = ["0"] if isinstance(module, nn.ConvTranspose2d) else ["1"]
    if hasattr(module, "tied") or hasattr(module, "read_by_product"):
        # It is used in both directions, or no weight reads its channels. What it makes of removed
        # channels is read by nothing.
        reading = ["0", "1"]
    for axis in reading:
        tensor.index_fill_(int(axis), torch.tensor(axes.get(axis, []), dtype=torch.int64), 0)


def _without_input(gone: list[int]) -> Any:
    def hook(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor]:
        x = args[0].clone()
        dim = 1 if x.ndim == 4 else x.ndim - 1
        return (x.index_fill(dim, torch.tensor(gone), 0),)

    return hook


def _norm_of_rest(gone: list[int]) -> Any:
    """Return a hook that normalises again, over the channels that are left."""

    def hook(module: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        x = args[0]
        result = torch.zeros_like(output)
        if isinstance(module, nn.LayerNorm):
            kept = [one for one in range(x.shape[-1]) if one not in gone]
            rest = x[..., kept]
            mean, variance = rest.mean(-1, keepdim=True), rest.var(-1, keepdim=True, correction=0)
            normal = (rest - mean) / (variance + module.eps).sqrt()
            result[..., kept] = normal * module.weight[kept] + module.bias[kept]
            return result
        size = x.shape[1] // module.num_groups
        for first in range(0, x.shape[1], size):
            kept = [one for one in range(first, first + size) if one not in gone]
            rest = x[:, kept]
            mean = rest.mean((1, 2, 3), keepdim=True)
            variance = rest.var((1, 2, 3), keepdim=True, correction=0)
            normal = (rest - mean) / (variance + module.eps).sqrt()
            scale, shift = module.weight[kept], module.bias[kept]
            result[:, kept] = normal * scale[:, None, None] + shift[:, None, None]
        return result

    return hook
