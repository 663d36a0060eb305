"""Removing channels: smaller tensors, and modules that know their new sizes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from vinedresser.errors import PruningError
from vinedresser.pruning.plan import Plan, check_fits
from vinedresser.pruning.torch_.running import copied, like, named_tensors


def removed(model: nn.Module, plan: Plan) -> nn.Module:
    """Return a copy of a model without a plan's channels; training and evaluation mode are kept.

    Args:
        model: a model of the architecture that the plan was made for, with any weights.

    Raises:
        PruningError: the plan is for another architecture, or names what the model does not have.
    """
    tensors = named_tensors(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    check_fits(plan, shapes)
    _check_attributes(plan, model)
    smaller = {id(tensors[name]): _cut(tensors[name], axes) for name, axes in plan.tensors.items()}
    pruned = copied(model, smaller)
    _rescale_lengths(plan, tensors, named_tensors(pruned))
    for path, value in plan.attributes.items():
        owner, _, name = path.rpartition(".")
        setattr(pruned.get_submodule(owner), name, value)
    for (path, module), before in zip(pruned.named_modules(), model.modules(), strict=True):
        module.training = before.training
        if any(name.startswith(f"{path}." if path else "") for name in plan.tensors):
            _resize(module)
    return pruned


def _check_attributes(plan: Plan, model: nn.Module) -> None:
    """Refuse a plan, maybe from a stranger's file, that sets anything but a number to a smaller."""
    modules = dict(model.named_modules())
    for path, value in plan.attributes.items():
        owner, _, name = path.rpartition(".")
        before = vars(modules[owner]).get(name) if owner in modules else None
        if type(before) is not int or name.startswith("_") or not 1 <= value <= before:
            raise PruningError(f"the plan sets {path} to {value}, but the model has {before}")


def _cut(tensor: torch.Tensor, axes: Mapping[str, list[int]]) -> torch.Tensor:
    smaller = tensor.detach()
    for axis, gone in axes.items():
        kept = np.delete(np.arange(tensor.shape[int(axis)]), gone)
        smaller = smaller.index_select(int(axis), torch.from_numpy(kept).to(tensor.device))
    return like(tensor, smaller.contiguous())


_DIRECTIONS = {
    "weight_v": "weight_g",
    "parametrizations.weight.original1": "parametrizations.weight.original0",
}


def _rescale_lengths(
    plan: Plan, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
) -> None:
    """Adapt the lengths of weight norm, so that the weights that remain keep their values.

    weight = g * v / |v|, and |v| changes with the input channels that are removed from v.
    """
    for name, axes in plan.tensors.items():
        layer = next((name.removesuffix(end) for end in _DIRECTIONS if name.endswith(end)), None)
        if layer is None:
            continue
        length = after[layer + _DIRECTIONS[name.removeprefix(layer)]]
        # The length has one value for each index of one axis, and size 1 along the others.
        axis = max(range(length.ndim), key=lambda dim: length.shape[dim])
        if set(axes) <= {str(axis)}:
            continue
        others = [dim for dim in range(length.ndim) if dim != axis]
        norms = torch.linalg.vector_norm(before[name].detach(), dim=others, keepdim=True)
        norms = _cut(norms, {str(axis): axes.get(str(axis), [])})
        rest = torch.linalg.vector_norm(after[name].detach(), dim=others, keepdim=True)
        with torch.no_grad():
            length.mul_(rest / norms)


def _resize(module: nn.Module) -> None:
    """Set the attributes of a layer to the sizes of its tensors."""
    if isinstance(module, nn.modules.conv._ConvNd):
        sizes = [module.weight.shape[0], module.weight.shape[1]]
        if module.transposed:
            module.in_channels, module.out_channels = sizes[0], sizes[1] * module.groups
        else:
            module.out_channels, module.in_channels = sizes[0], sizes[1] * module.groups
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        tensor = module.weight if module.weight is not None else module.running_mean
        if tensor is not None:
            module.num_features = len(tensor)
    elif isinstance(module, nn.GroupNorm) and module.weight is not None:
        module.num_channels = len(module.weight)
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm) and module.weight is not None:
        module.normalized_shape = tuple(module.weight.shape)
    elif isinstance(module, nn.Embedding):
        module.num_embeddings, module.embedding_dim = module.weight.shape
    elif isinstance(module, nn.PReLU):
        module.num_parameters = len(module.weight)
