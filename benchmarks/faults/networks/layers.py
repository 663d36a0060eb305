"""Layers of a case, checked and built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.faults.networks.activations import ACTIVATIONS, LINEAR
from benchmarks.faults.networks.initialisation import check_init, initialise
from benchmarks.faults.networks.recurrent import OverTime, Recurrent
from benchmarks.faults.words import check_keys, known_word, number, split_word
from vinedresser.errors import ConfigError

__all__ = ["LAYER_KINDS", "Layer", "build_model", "check_layer"]

# Keys of a layer's table besides its kind.
_OPTIONS = (
    *("act", "activation", "init", "bias_init", "l1", "l2", "bias", "stride", "padding", "alpha"),
    *("frozen", "in_optimizer", "return_sequences", "bidirectional", "eps", "identical", "repeat"),
)
_RECURRENT = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN, "simplernn": nn.RNN}
_SLOPED = {"leaky_relu": nn.LeakyReLU, "leakyrelu": nn.LeakyReLU, "elu": nn.ELU}
_NORMS = ("bn", "batchnorm", "layernorm", "ln")


@dataclass(frozen=True)
class Layer:
    """One entry of a case's list of layers.

    Attributes:
        kind: kind, such as "dense"; "act" for a separate activation.
        value: value of the kind, such as the number of units.
        act: activation after it; "" for none.
        init: initialisation of its weights; None for that of the case.
        bias_init: initialisation of its biases; None for zeros, as in Keras, or the torch default.
        l1, l2: factors of penalties added to the loss, sum of abs(w) and of w squared.
        options: other keys.
    """

    kind: str
    value: Any
    act: str = ""
    init: str | None = None
    bias_init: str | None = None
    l1: float = 0.0
    l2: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)


def check_layer(table: object, where: str) -> Layer:
    """Return a layer.

    Raises:
        ConfigError: Its kind, activation or another key is unknown, or a value is invalid.
    """
    if isinstance(table, str):
        table = {table: True}
    given = check_keys(table, [*LAYER_KINDS, *_OPTIONS], where)
    kinds = [key for key in given if key in LAYER_KINDS and key != "act"]
    if len(kinds) > 1 or not (kinds or "act" in given or "activation" in given):
        named = " and ".join(kinds) or "none"
        raise ConfigError(f"{where}: must have one kind of layer, not {named}")
    kind = kinds[0] if kinds else "act"
    act = given.pop("act", None) or given.pop("activation", None) or ""
    if act and act not in LINEAR:
        word, _ = split_word(act, f"{where}.act")
        known_word(word, ACTIVATIONS, f"{where}.act", "activation")
    for key in ("init", "bias_init"):
        if given.get(key) is not None:
            check_init(given[key], f"{where}.{key}")
    value = act if kind == "act" else given.pop(kind)
    _check_value(kind, value, f"{where}.{kind}")
    return Layer(
        kind,
        value,
        "" if kind == "act" or act in LINEAR else act,
        given.pop("init", None),
        given.pop("bias_init", None),
        number(given.pop("l1", 0.0), f"{where}.l1"),
        number(given.pop("l2", 0.0), f"{where}.l2"),
        given,
    )


def build_model(
    layers: tuple[Layer, ...], row: Tensor, init: str, vocabulary: int
) -> tuple[nn.Sequential, dict[str, Layer]]:
    """Return an initialised model, and the layer of each of its parts with parameters.

    Args:
        layers: layers in order.
        row: one input [1, ...], which determines the sizes.
        init: default initialisation.
        vocabulary: number of input tokens.

    Raises:
        ConfigError: A layer cannot take the output of the previous one.
    """
    modules: list[nn.Module] = []
    owners: dict[str, Layer] = {}
    now = row
    for place, layer in enumerate(layers):
        for _ in range(layer.options.get("repeat", 1)):
            for made in _modules(layer, now, vocabulary, f"model[{place}]"):
                if any(True for _ in made.parameters()):
                    owners[str(len(modules))] = layer
                now = _passed(made, now, f"model[{place}]")
                modules.append(made)
    for name, layer in owners.items():
        _initialise(modules[int(name)], layer, init)
    return nn.Sequential(*modules), owners


def _modules(layer: Layer, now: Tensor, vocabulary: int, where: str) -> list[nn.Module]:
    """Return the modules of a layer: itself and its activation."""
    if layer.kind == "act" and layer.value in LINEAR:
        return []
    if layer.kind == "embedding" and not isinstance(layer.value, list):
        layer = replace(layer, value=[vocabulary, layer.value])
    module = LAYER_KINDS[layer.kind](layer, now, where)
    if not layer.act or (isinstance(module, Recurrent) and module.uses(layer.act)):
        return [module]
    return [module, _activation(layer.act, layer)]


def _activation(text: str, layer: Layer) -> nn.Module:
    """Return an activation, such as ``relu`` or ``leaky_relu:0.1`` with its slope."""
    word, slope = split_word(text, "act")
    slope = layer.options.get("alpha") if slope is None else slope
    if slope is not None and word in _SLOPED:
        return _SLOPED[word](float(slope))
    return ACTIVATIONS[word]()


@torch.no_grad()
def _passed(module: nn.Module, x: Tensor, where: str) -> Tensor:
    """Return the output of a module, without changing its statistics or the random state."""
    was = module.training
    module.eval()
    try:
        out: Tensor = module(x)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ConfigError(
            f"{where}: does not take inputs of {list(x.shape[1:])}: {error}"
        ) from error
    finally:
        module.train(was)
    return out


def _initialise(module: nn.Module, layer: Layer, init: str) -> None:
    """Fill the weights and biases of a module; norms keep their ones and zeros."""
    if layer.kind in _NORMS:
        return
    word = layer.init or init
    for name, parameter in module.named_parameters():
        if "bias" in name:
            kept = word in ("torch", "default")
            initialise(parameter, layer.bias_init or ("torch" if kept else "zeros"))
        elif parameter.ndim > 1:
            initialise(parameter, word)
            if layer.options.get("identical"):
                with torch.no_grad():
                    parameter.copy_(parameter[:1].expand_as(parameter))


def _check_value(kind: str, value: Any, where: str) -> None:
    """Check the value of a layer's kind."""
    right: Callable[[Any], bool] = _VALUES.get(kind, _any)
    if not right(value):
        raise ConfigError(f"{where}: invalid value {value!r}")


def _any(_: Any) -> bool:
    return True


def _units(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _several(value: Any) -> bool:
    listed = isinstance(value, list) and 1 <= len(value) <= 3 and all(map(_units, value))
    return listed or _units(value)


def _share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


_VALUES: dict[str, Callable[[Any], bool]] = {
    "dense": _units,
    "linear": _units,
    "conv": _several,
    "conv2d": _several,
    "conv1d": _several,
    "embedding": _several,
    "maxpool": _units,
    "avgpool": _units,
    "dropout": _share,
    "spatial_dropout": _share,
    **dict.fromkeys(_RECURRENT, _several),
    **dict.fromkeys(("bn", "batchnorm"), _share),
}


def _dense(layer: Layer, now: Tensor, _: str) -> nn.Module:
    return nn.Linear(now.shape[-1], layer.value, bias=layer.options.get("bias", True))


def _sizes(layer: Layer) -> tuple[int, int, int]:
    """Return channels, kernel and stride."""
    value = layer.value if isinstance(layer.value, list) else [layer.value]
    channels, kernel, stride = (*value, 3, 1)[:3] if len(value) == 1 else (*value, 1)[:3]
    return channels, kernel, layer.options.get("stride", stride)


def _conv(layer: Layer, now: Tensor, where: str) -> nn.Module:
    if now.ndim != 4:
        raise ConfigError(f"{where}: conv takes images [C, H, W], not {list(now.shape[1:])}")
    channels, kernel, stride = _sizes(layer)
    padding = layer.options.get("padding", "same")
    if padding == "same":
        padding = kernel // 2
    elif padding == "valid":
        padding = 0
    bias = layer.options.get("bias", True)
    return nn.Conv2d(now.shape[1], channels, kernel, stride, padding, bias=bias)


def _conv1d(layer: Layer, now: Tensor, _: str) -> nn.Module:
    channels, kernel, stride = _sizes(layer)
    return OverTime(nn.Conv1d(now.shape[-1], channels, kernel, stride, padding=kernel // 2))


def _batch_norm(layer: Layer, now: Tensor, _: str) -> nn.Module:
    momentum = 0.1 if isinstance(layer.value, bool) else float(layer.value)
    eps = layer.options.get("eps", 1e-5)
    kind = nn.BatchNorm2d if now.ndim == 4 else nn.BatchNorm1d
    return kind(now.shape[1], momentum=momentum, eps=eps)


def _recurrent(layer: Layer, now: Tensor, _: str) -> nn.Module:
    units = layer.value[0] if isinstance(layer.value, list) else layer.value
    return Recurrent(
        _RECURRENT[layer.kind],
        now.shape[-1],
        units,
        sequences=bool(layer.options.get("return_sequences")),
        bidirectional=bool(layer.options.get("bidirectional")),
        act=layer.act,
    )


def _pool(layer: Layer, now: Tensor, _: str) -> nn.Module:
    greatest = layer.kind == "maxpool"
    if now.ndim == 4:
        return nn.MaxPool2d(layer.value) if greatest else nn.AvgPool2d(layer.value)
    return OverTime(nn.MaxPool1d(layer.value) if greatest else nn.AvgPool1d(layer.value))


def _global_pool(layer: Layer, now: Tensor, _: str) -> nn.Module:
    greatest = layer.value == "max"
    if now.ndim == 4:
        pool = nn.AdaptiveMaxPool2d(1) if greatest else nn.AdaptiveAvgPool2d(1)
        return nn.Sequential(pool, nn.Flatten())
    whole = nn.AdaptiveMaxPool1d(1) if greatest else nn.AdaptiveAvgPool1d(1)
    return nn.Sequential(OverTime(whole), nn.Flatten())


_Maker = Callable[[Layer, Tensor, str], nn.Module]
LAYER_KINDS: dict[str, _Maker] = {
    "dense": _dense,
    "linear": _dense,
    "conv": _conv,
    "conv2d": _conv,
    "conv1d": _conv1d,
    "maxpool": _pool,
    "avgpool": _pool,
    "globalpool": _global_pool,
    "flatten": lambda _, __, ___: nn.Flatten(),
    "dropout": lambda layer, _, __: nn.Dropout(layer.value),
    "spatial_dropout": lambda layer, _, __: nn.Dropout2d(layer.value),
    "bn": _batch_norm,
    "batchnorm": _batch_norm,
    "layernorm": lambda _, now, __: nn.LayerNorm(now.shape[-1]),
    "ln": lambda _, now, __: nn.LayerNorm(now.shape[-1]),
    "embedding": lambda layer, _, __: nn.Embedding(*layer.value[:2]),
    **dict.fromkeys(_RECURRENT, _recurrent),
    "act": lambda layer, _, __: _activation(layer.value, layer),
}
