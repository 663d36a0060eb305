"""Names of a torch model's parameters, modules and outputs: stable, unique, without wrappers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from vinedresser.frameworks.torch_.bare_tensors import BareTensors

__all__ = ["MethodAsForward", "NamedParameter", "Names", "own_class", "unwrapped"]

# The path components that torch.compile, FSDP and checkpoint wrappers insert.
_WRAPPERS = re.compile(r"(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?:\.|$)")
# The modules of torch's wrappers; torch's layers may have a child named "module", too.
_WRAPPERS_OF_TORCH = re.compile(r"torch\.(?!nn\.modules\.)")
_DERIVING = ("FSDP", "Parametrized")
# Layers whose weights have the inputs first.
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


class MethodAsForward(nn.Module):
    """Wraps a model so that a call of one of its methods is a forward of the wrapper.

    Frameworks such as Lightning call a method of the model in a step instead of its forward, with
    a batch that holds the labels, too. The inputs and outputs of the model are those of the
    forward that the method calls.

    Attributes:
        core: the child that has all parameters of the model, if there is one. A method may call it
            instead of the model's own forward; its inputs and outputs are then those of the model.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.core = _core(module)
        self._method: Callable[..., Any] | None = None

    def run(self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of the model as the wrapper's forward."""
        before, self._method = self._method, method
        try:
            return self(*args, **kwargs)
        finally:
            self._method = before

    def forwards(self) -> Iterator[nn.Module]:
        """Yield the modules whose outputs may be those of the model."""
        yield self.module
        if self.core is not None:
            yield self.core

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        assert self._method is not None
        return self._method(*args, **kwargs)


class NamedParameter(NamedTuple):
    """A parameter and its names.

    Attributes:
        weight: full name, such as ``weights/conv1.weight`` or ``biases/conv1.bias``.
        gradient: full name of the gradient, such as ``gradients/conv1.weight``.
        output_axis: axis of the layer's outputs.
    """

    value: nn.Parameter
    weight: str
    gradient: str
    output_axis: int

    @property
    def taylor(self) -> str:
        """Full name of weight times gradient, such as ``weight_taylor/conv1.weight``."""
        return f"weight_taylor/{self.path}"

    @property
    def update(self) -> str:
        """Full name of the update, such as ``updates/conv1.weight``."""
        return f"updates/{self.path}"

    @property
    def path(self) -> str:
        """Name without the kind."""
        return self.gradient.partition("/")[2]

    def taylor_terms(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the sum of weight times gradient for each output of the layer, [outputs].

        Molchanov et al., Importance Estimation for Neural Network Pruning, CVPR 2019, equation 8
        before the square.

        Args:
            gradient: the parameter's gradient, dense or sparse.
        """
        gradient = gradient.detach()
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        outputs = torch.atleast_1d(self.value.detach() * dense).movedim(self.output_axis, 0)
        terms: torch.Tensor = outputs.reshape(len(outputs), -1).sum(1)
        return terms


class Names:
    """Lists modules and tensors of a model with their names, as the model is at the time.

    Shared modules and tensors are listed once, under their first path.

    Args:
        model: the user's model, without wrappers.
        prefix: prefix of all paths, or None.

    Attributes:
        prefix: prefix with its dot, or "".
        root: path of the model itself.
    """

    def __init__(self, model: nn.Module, prefix: str | None = None) -> None:
        self._model = model
        self.prefix = f"{prefix}." if prefix else ""
        self.root = prefix or own_class(model).__name__
        # By torch's path.
        self._modules: dict[str, str] = {}
        self._parameters: dict[str, tuple[str, str]] = {}
        # This rank's shards of parameters, by torch's path.
        self._shards: dict[str, nn.Parameter] = {}
        # The modules with what they had when their parameters were listed, and this list.
        self._listed: tuple[list[tuple[nn.Module, list[int]]], list[NamedParameter]] = ([], [])

    def modules(self) -> list[tuple[str, nn.Module]]:
        """Return paths and modules without wrappers; the root's path is its class name."""
        found = []
        for path, module in self._walk():
            if "_orig_mod" in module._modules:
                continue
            name = self._modules.get(path)
            if name is None:
                name = self._modules[path] = self._path(path) or self.root
            found.append((name, module))
        return found

    def parameters(self) -> list[NamedParameter]:
        """Return the parameters with their names.

        For a parameter sharded by `fully_shard`, return this rank's shard, even while the full
        parameter replaces it.
        """
        seen, listed = self._listed
        if not seen or any(_contents(one) != before for one, before in seen):
            # In this order, since another thread may change the model meanwhile.
            seen = [(module, _contents(module)) for _, module in self._walk()]
            listed = self._list_parameters()
            # Both keep alive what the numbers in `seen` stand for.
            self._listed = seen, listed
        return listed

    def _list_parameters(self) -> list[NamedParameter]:
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
                    kind = "biases" if _is_bias(module, name) else "weights"
                    names = self._parameters[path] = (f"{kind}/{clean}", f"gradients/{clean}")
                transposed = isinstance(module, _TRANSPOSED) and name == "weight"
                shard = self._shard(path, parameter)
                found.append(NamedParameter(shard, *names, output_axis=int(transposed)))
        return found

    def buffers(self) -> list[tuple[str, torch.Tensor]]:
        """Return full names and buffers, such as ``buffers/bn1.running_mean``."""
        found = ((name, module._buffers[key]) for name, module, key in self.buffer_places())
        return [(name, buffer) for name, buffer in found if buffer is not None]

    def buffer_places(self) -> list[tuple[str, nn.Module, str]]:
        """Return the full name of each buffer, its module, and its name in the module."""
        found = []
        seen: set[int] = set()
        for prefix, module in self._walk():
            for name, buffer in module._buffers.items():
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    path = self._path(f"{prefix}.{name}" if prefix else name)
                    found.append((f"buffers/{path}", module, name))
        return found

    def _shard(self, path: str, parameter: nn.Parameter) -> nn.Parameter:
        """Return the shard of a sharded parameter, or the parameter itself."""
        if type(parameter) is nn.Parameter:
            return self._shards.get(path, parameter) if self._shards else parameter
        if hasattr(parameter, "to_local"):
            self._shards[path] = parameter
        return parameter

    def all(self) -> list[str]:
        """Return the full names of all tensors of parameters, buffers and modules."""
        parameters = self.parameters()
        return [
            *(parameter.weight for parameter in parameters),
            *(parameter.gradient for parameter in parameters),
            *(parameter.update for parameter in parameters),
            *(parameter.taylor for parameter in parameters),
            *(name for name, _ in self.buffers()),
            *(
                f"{kind}/{path}"
                for kind in ("inputs", "outputs", "input_taylor", "loss_terms")
                for path, _ in self.modules()
            ),
        ]

    def _path(self, path: str) -> str:
        """Return a path without wrappers and with the prefix; "" for the root."""
        clean = _clean(path)
        return f"{self.prefix}{clean}" if clean else ""

    def _walk(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield torch's path and each module once, in the order of `nn.Module.named_modules`."""
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


def _core(module: nn.Module) -> nn.Module | None:
    """Return the only child with parameters if the module has none itself, else None."""
    found = [child for child in module.children() if next(child.parameters(), None) is not None]
    own = next(module.parameters(recurse=False), None)
    return found[0] if len(found) == 1 and own is None else None


def _contents(module: nn.Module) -> list[int]:
    """Return the identities of the children and parameters of a module."""
    return [*map(id, module._modules.values()), *map(id, module._parameters.values())]


def _is_bias(module: nn.Module, name: str) -> bool:
    return "bias" in name or (isinstance(module, BareTensors) and module.is_bias(name))


def own_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module as the user defined it."""
    found = type(module)
    # `fully_shard` and `register_parametrization` derive FSDPLinear, ParametrizedLinear.
    while found.__name__ in {f"{way}{found.__bases__[-1].__name__}" for way in _DERIVING}:
        found = found.__bases__[-1]
    return found


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the user's model inside torch's wrappers (compiled, data parallel)."""
    while isinstance(model, MethodAsForward) or _WRAPPERS_OF_TORCH.match(
        own_class(model).__module__
    ):
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model


def _clean(path: str) -> str:
    """Return a path without the components of wrappers."""
    return _WRAPPERS.sub("", path).rstrip(".")
