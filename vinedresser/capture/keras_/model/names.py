"""Names of the layers and variables of a Keras model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras

from vinedresser.capture.keras_.model.activations import activation_name
from vinedresser.capture.keras_.model.paths import layer_paths, own_name
from vinedresser.store.collections.modules import ModuleInfo

__all__ = ["NamedVariable", "Names"]

_ANONYMOUS = re.compile(r"variable(_\d+)?")
_BIASES = ("bias", "beta")


class NamedVariable(NamedTuple):
    """A variable of a model.

    Attributes:
        value: the variable.
        kind: "weights", "biases" or "buffers".
        path: such as ``conv2d.kernel``.
    """

    value: Any
    kind: str
    path: str

    @property
    def name(self) -> str:
        """The full name, such as ``weights/conv2d.kernel``."""
        return f"{self.kind}/{self.path}"


class Names:
    """The current names of a model; not cached, since layers may be built late.

    Args:
        model: the model.
        prefix: prefix of every path, without the dot; None for no prefix.

    Attributes:
        model: the model.
        prefix: the prefix with its dot, or "".
    """

    def __init__(self, model: Any, prefix: str | None = None) -> None:
        self.model = model
        self.prefix = f"{prefix}." if prefix else ""
        self._root = prefix or type(model).__name__

    def layers(self) -> list[tuple[str, Any]]:
        """Return the layers with their paths; the root's path is the prefix or its class name."""
        return [(self._root, self.model), *layer_paths(self.model, self.prefix)[1:]]

    def modules(self) -> dict[str, ModuleInfo]:
        """Return a description of each layer by path."""
        return {
            path: ModuleInfo(type(layer).__name__, activation_name(layer), layer is self.model)
            for path, layer in self.layers()
            if not isinstance(layer, keras.layers.InputLayer)
        }

    def variables(self) -> list[NamedVariable]:
        """Return the existing variables, shared ones once."""
        found: list[NamedVariable] = []
        seen: set[int] = set()
        for path, layer in layer_paths(self.model, self.prefix):
            taken: set[str] = set()
            before = f"{path}." if path else self.prefix
            for variable, trained in _own_variables(layer):
                name = _variable_name(layer, variable, taken)
                if id(variable) in seen:
                    continue
                seen.add(id(variable))
                kind = "buffers"
                if trained:
                    kind = "biases" if any(word in name for word in _BIASES) else "weights"
                found.append(NamedVariable(variable, kind, f"{before}{name}"))
        return found

    def all(self) -> list[str]:
        """Return the names of all tensors that can be captured."""
        variables = self.variables()
        paths = list(self.modules())
        return [
            *(one.name for one in variables),
            *(
                f"{kind}/{one.path}"
                for kind in ("gradients", "updates")
                for one in variables
                if one.kind != "buffers"
            ),
            *(f"inputs/{path}" for path in paths),
            *(f"outputs/{path}" for path in paths),
        ]


def _own_variables(layer: Any) -> Iterator[tuple[Any, bool]]:
    """Yield a layer's own variables and whether each is a parameter (frozen or not)."""
    for variable in layer._trainable_variables:
        yield variable, True
    for variable in layer._non_trainable_variables:
        yield variable, False


def _variable_name(layer: Any, variable: Any, taken: set[str]) -> str:
    """Return a unique name for a variable in its layer and add it to `taken`."""
    name = str(variable.name)
    if _ANONYMOUS.fullmatch(name) or name in taken:
        name = own_name(layer, variable) or name
    name = name.replace("/", "_")
    if name in taken:
        name = f"{name}_{sum(one.startswith(name) for one in taken)}"
    taken.add(name)
    return name
