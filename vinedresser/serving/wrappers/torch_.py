"""Recording the calls of a torch module, with the outputs of a layer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.serving.recording.items import Item
from vinedresser.serving.wrappers.calls import Sink, call_inputs

__all__ = ["TorchWatch", "evaluating"]

# Layers whose outputs have the channels before the positions.
_CHANNELS_FIRST = (
    "torch.nn.modules.conv",
    "torch.nn.modules.batchnorm",
    "torch.nn.modules.instancenorm",
    "torch.nn.modules.pooling",
)


class TorchWatch:
    """Hooks on a module that record each of its calls; `close` removes them.

    Args:
        model: the module, called as usual.
        layer: path of the module whose output is the embedding, as in `named_modules`; None: no
            embedding. Positions are averaged: [requests, channels, height, width] over the last
            two axes, [requests, tokens, dimensions] over the tokens.

    Raises:
        ConfigError: there is no such layer.
    """

    def __init__(self, model: nn.Module, sink: Sink, layer: str | None) -> None:
        self._model = model
        self._sink = sink
        self._calls = threading.local()
        self._handles = []
        if layer is not None:
            modules = dict(model.named_modules())
            if layer not in modules:
                raise ConfigError(
                    f"layer: the model has no module {layer!r}{did_you_mean(layer, modules)}"
                )
            self._handles.append(modules[layer].register_forward_hook(_eager(self._in_layer)))
        self._handles += [
            model.register_forward_pre_hook(_eager(self._before), with_kwargs=True),
            model.register_forward_hook(_eager(self._after)),
        ]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module; calling the module itself is recorded as well."""
        return self._model(*args, **kwargs)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._calls.embedding = None
        self._calls.item = self._sink.begin(call_inputs(args, kwargs))

    def _in_layer(self, layer: nn.Module, _: Any, output: Any) -> None:
        if getattr(self._calls, "item", None) is not None:
            self._calls.embedding = _embedding(layer, output)

    def _after(self, _module: nn.Module, _args: Any, output: Any) -> None:
        item: Item | None = getattr(self._calls, "item", None)
        if item is not None:
            embedding, self._calls.embedding = self._calls.embedding, None
            self._calls.item = None
            self._sink.finish(item, output, embedding)


def _eager(hook: Callable[..., None]) -> Callable[..., None]:
    """Keep a hook out of graphs that torch.compile makes of the module."""
    # Importing the compiler takes seconds; without it, nothing is compiled.
    if "torch._dynamo" not in sys.modules:
        return hook
    kept: Callable[..., None] = torch.compiler.disable(hook)
    return kept


def _embedding(layer: nn.Module, output: Any) -> torch.Tensor | None:
    """Return the output of a layer as [requests, dimensions]."""
    value = output[0] if isinstance(output, tuple) else output
    if not isinstance(value, torch.Tensor) or value.ndim < 2:
        return None
    value = value.detach()
    if value.ndim == 2:
        # A later operation in place must not reach it.
        return value.clone()
    first = value.ndim > 3 or type(layer).__module__ in _CHANNELS_FIRST
    axes = [*range(2, value.ndim)] if first else [1]
    return value.mean(axes)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode, without gradients, and restore its modes afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
