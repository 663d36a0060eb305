"""Selecting the modules of a torch model that need hooks, and those that tolerate none."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules import activation as activations
from torch.nn.modules import module as modules_of_torch

from vinedresser.capture.config.capture_config import Due
from vinedresser.frameworks.torch_.module_calls import ModuleHook

__all__ = [
    "FORWARD_KINDS",
    "fused_modules",
    "needs_hooks",
    "only_activations",
    "runs_only_known_code",
]

# The kinds of tensors captured during a forward.
FORWARD_KINDS = ("inputs", "outputs", "attention", "input_taylor", "loss_terms")
# Collections for which a call is not needed to know whether they hold a module's tensors.
_KNOWN = frozenset({"activations", "model_inputs", "model_outputs"})
# Modules of torch that call no activation function, except through child modules.
_SIMPLE: frozenset[type[nn.Module]] = frozenset(
    {
        nn.Sequential, nn.Identity, nn.Flatten, nn.Unflatten,
        nn.Linear, nn.Bilinear, nn.Embedding, nn.EmbeddingBag,
        nn.Conv1d, nn.Conv2d, nn.Conv3d,
        nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
        nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm,
        nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
        nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
        nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
        nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
        nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
        nn.Upsample, nn.PixelShuffle, nn.ZeroPad2d, nn.ReflectionPad2d,
    }
)  # fmt: skip
_LAYERS = (nn.TransformerEncoderLayer, nn.MultiheadAttention)


def only_activations(due: Due) -> bool:
    """Return whether only activations, and inputs and outputs of whole models are due.

    This is all that rules need. With a global module hook of the user, any module may call
    functions, so the answer is False.
    """
    return not modules_of_torch._has_any_global_hook() and all(
        (one.name in _KNOWN and one.regex is None) or not any(map(one.reaches, FORWARD_KINDS))
        for one, _ in due.parts
    )


def needs_hooks(path: str, module: nn.Module, due: Due) -> bool:
    """Return whether a module's tensors are due, or those of functions it may call.

    Args:
        due: what is due, for which `only_activations` is true.
    """
    asked = due.ask(f"outputs/{path}") or due.ask(f"inputs/{path}")
    return bool(asked) or not _is_simple(module)


def runs_only_known_code(modules: Iterable[nn.Module]) -> bool:
    """Return whether a model consists of known modules of torch."""
    return all(_is_simple(module) or _is_activation(module) for module in modules)


def _is_simple(module: nn.Module) -> bool:
    return type(module) in _SIMPLE and _is_as_torch_made_it(module)


def _is_activation(module: nn.Module) -> bool:
    """Return whether a module is an unmodified activation function of torch."""
    known = type(module).__module__ == activations.__name__
    return known and type(module) is not nn.MultiheadAttention and _is_as_torch_made_it(module)


def _is_as_torch_made_it(module: nn.Module) -> bool:
    """Return whether a call of a module runs only code of torch and vinedresser."""
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    return "forward" not in vars(module) and all(type(hook) is ModuleHook for hook in hooks)


def fused_modules(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the transformer layers and attentions that may use torch's fast path now.

    The results of its kernel differ in the last bits, and more at padded positions. Torch uses it
    only if no module of the layer has a hook and no function mode is active.
    """
    if not torch.backends.mha.get_fastpath_enabled():
        return []
    return [module for module in modules if isinstance(module, _LAYERS) and _is_fused(module)]


def _is_fused(module: nn.TransformerEncoderLayer | nn.MultiheadAttention) -> bool:
    """Return whether the conditions of the fast path are met that do not depend on the input."""
    attention = module if isinstance(module, nn.MultiheadAttention) else module.self_attn
    assert isinstance(attention, nn.MultiheadAttention)
    return (
        not module.training
        and attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and not (
            torch.is_grad_enabled()
            and any(parameter.requires_grad for parameter in module.parameters())
        )
    )
