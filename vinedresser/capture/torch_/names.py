"""Names of a torch model's parameters, modules and outputs: stable, unique, without wrappers."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

__all__ = ["Names", "NamedParameter", "leaves", "unwrapped"]

# What torch.compile, FSDP and checkpoint wrappers put between a module's name and its own.
_WRAPPERS = re.compile(r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?:\.|$)")


class NamedParameter(NamedTuple):
    """A parameter under its names.

    Attributes:
        value: the parameter.
        weight: its name, such as ``weights/conv1.weight`` or ``biases/conv1.bias``.
        gradient: its gradient's, such as ``gradients/conv1.weight``.
    """

    value: nn.Parameter
    weight: str
    gradient: str


class Names:
    """Walks over a model and names what it finds, anew each time, since models may change.

    What is shared comes once, under its first path.

    Args:
        model: the user's own model, without wrappers.
        prefix: comes before every path, with a dot between; None: nothing does.
    """

    def __init__(self, model: nn.Module, prefix: str | None = None) -> None:
        self._model = model
        self._prefix = f"{prefix}." if prefix else ""
        self._root = prefix or type(model).__name__
        # By the path that torch gives.
        self._modules: dict[str, str] = {}
        self._parameters: dict[str, tuple[str, str]] = {}

    def modules(self) -> list[tuple[str, nn.Module]]:
        """Return the modules with their paths; wrappers are left out, the root has its class's."""
        found = []
        for path, module in self._walk():
            if isinstance(module._modules.get("_orig_mod"), nn.Module):
                continue
            name = self._modules.get(path)
            if name is None:
                name = self._modules[path] = self._path(path) or self._root
            found.append((name, module))
        return found

    def parameters(self) -> list[NamedParameter]:
        """Return the parameters with their names."""
        found = []
        seen: set[int] = set()
        for prefix, module in self._walk():
            for name, parameter in module._parameters.items():
                if parameter is None or id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                path = f"{prefix}.{name}" if prefix else name
                names = self._parameters.get(path)
                if names is None:
                    clean = self._path(path)
                    kind = "biases" if "bias" in name else "weights"
                    names = self._parameters[path] = (f"{kind}/{clean}", f"gradients/{clean}")
                found.append(NamedParameter(parameter, *names))
        return found

    def all(self) -> list[str]:
        """Return the names of all tensors that there are to capture."""
        parameters = self.parameters()
        return [
            *(one.weight for one in parameters),
            *(one.gradient for one in parameters),
            *(f"outputs/{path}" for path, _ in self.modules()),
        ]

    def _path(self, path: str) -> str:
        """Return a path as it is told; "" of the root."""
        clean = _clean(path)
        return f"{self._prefix}{clean}" if clean else ""

    def _walk(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield every module once, with torch's path, in the order of `nn.Module.named_modules`."""
        seen: set[int] = set()
        stack: list[tuple[str, nn.Module]] = [("", self._model)]
        while stack:
            prefix, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield prefix, module
            for name, child in reversed(module._modules.items()):
                if child is not None:
                    stack.append((f"{prefix}.{name}" if prefix else name, child))


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the user's own model inside the wrappers of torch (compiled, data parallel)."""
    while type(model).__module__.startswith("torch."):
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model


def leaves(value: Any, name: str = "") -> Iterable[tuple[str, torch.Tensor]]:
    """Return the tensors in what a module returned, each with a name that tells it apart.

    Args:
        value: a tensor, or any nesting of tuples, lists, mappings and dataclasses; whatever else it
            holds is passed over.
        name: of the value itself; what is inside has the place added, such as "[hidden]".
    """
    if isinstance(value, torch.Tensor):
        return ((name, value),)
    if isinstance(value, Mapping):
        inside: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, (tuple, list)):
        inside = enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = ((entry.name, getattr(value, entry.name)) for entry in dataclasses.fields(value))
    else:
        return ()
    return itertools.chain.from_iterable(leaves(item, f"{name}[{key}]") for key, item in inside)


def _clean(path: str) -> str:
    """Return a path without what wrappers have put into it."""
    return _WRAPPERS.sub("", path).rstrip(".")
