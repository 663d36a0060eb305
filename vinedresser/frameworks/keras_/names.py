"""Names of the layers and variables of a Keras model."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
from keras.src.models.functional import Functional
from keras.src.utils.naming import to_snake_case

from vinedresser.frameworks.keras_.bare_variables import BareVariables
from vinedresser.frameworks.keras_.layers import activation_name
from vinedresser.store.collections.modules import ModuleInfo

__all__ = ["NamedVariable", "Names"]

_ANONYMOUS = re.compile(r"variable(_\d+)?")
_BIASES = ("bias", "beta")
_AUTOMATIC = re.compile(r"(.+?)(?:_(\d+))?")
# Attributes in which Keras itself tracks layers and variables.
_KERAS_OWN = frozenset(
    re.findall(
        r"\w+",
        "_layers _metrics _modules _operations _operations_by_depth _functional _tracker "
        "_trainable_variables _non_trainable_variables",
    )
)


class NamedVariable(NamedTuple):
    """A variable of a model.

    Attributes:
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
        prefix: prefix of every path, without the dot; None for no prefix.

    Attributes:
        prefix: the prefix with its dot, or "".
        root: path of the model: its prefix or its class name.
    """

    def __init__(self, model: Any, prefix: str | None = None) -> None:
        self.model = model
        self.prefix = f"{prefix}." if prefix else ""
        self.root = prefix or type(model).__name__

    def layers(self) -> list[tuple[str, Any]]:
        """Return the layers with their paths; the root's path is the prefix or its class name."""
        return [(self.root, self.model), *_layer_paths(self.model, self.prefix)[1:]]

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
        for path, layer in _layer_paths(self.model, self.prefix):
            taken: set[str] = set()
            before = f"{path}." if path else self.prefix
            for variable, trained in _own_variables(layer):
                name = _variable_name(layer, variable, taken)
                if id(variable) in seen:
                    continue
                seen.add(id(variable))
                kind = "buffers"
                if trained:
                    kind = "biases" if _is_bias(layer, variable, name) else "weights"
                found.append(NamedVariable(variable, kind, f"{before}{name}"))
        return found

    def all(self) -> list[str]:
        """Return the names of all tensors that can be captured."""
        variables = self.variables()
        paths = list(self.modules())
        return [
            *(variable.name for variable in variables),
            *(
                f"{kind}/{variable.path}"
                for kind in ("gradients", "updates")
                for variable in variables
                if variable.kind != "buffers"
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


def _is_bias(layer: Any, variable: Any, name: str) -> bool:
    if isinstance(layer, BareVariables):
        return layer.is_bias(variable)
    return any(word in name for word in _BIASES)


def _variable_name(layer: Any, variable: Any, taken: set[str]) -> str:
    """Return a unique name for a variable in its layer and add it to `taken`."""
    if isinstance(layer, BareVariables):
        return str(layer.named[id(variable)])
    name = str(variable.name)
    if _ANONYMOUS.fullmatch(name) or name in taken:
        name = _own_name(layer, variable) or name
    name = name.replace("/", "_")
    if name in taken:
        name = f"{name}_{sum(one.startswith(name) for one in taken)}"
    taken.add(name)
    return name


def _layer_paths(model: Any, prefix: str) -> list[tuple[str, Any]]:
    """Return the model and its layers, each once, with their paths.

    Each part of a path is the name given to the layer. A layer with an automatic name gets that of
    its attribute (``fc1``, ``blocks.0``) or, in a Sequential or functional model, its number among
    the layers of its class in this model (``conv2d``, ``conv2d_1``), as in a process without other
    models. Inside layers of Keras itself, attributes take precedence.

    Args:
        model: the root; its own path is "".
        prefix: prefix of every path, such as "generator."; "" for none.
    """
    numbers = _renumbered(model)
    found: list[tuple[str, Any]] = [("", model)]
    seen = {id(model)}
    queue: deque[tuple[str, Any]] = deque(found)
    while queue:
        path, container = queue.popleft()
        taken: set[str] = set()
        for layer in container._flatten_layers(include_self=False, recursive=False):
            name = _unique(_name(container, layer, numbers), taken)
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            inner = f"{path}.{name}" if path else f"{prefix}{name}"
            found.append((inner, layer))
            queue.append((inner, layer))
    return found


def _own_name(owner: Any, value: Any) -> str | None:
    """Return the name of an object's attribute, such as "fc1" or "blocks.0"; None if not found."""
    attributes = vars(owner)
    if keras.backend.backend() == "torch":
        # A layer is a torch module, which keeps those of its attributes that are layers apart.
        attributes = {**attributes, **attributes["_modules"]}
    # Public names take precedence.
    for attribute in sorted(map(str, attributes), key=lambda one: one.startswith("_")):
        if attribute in _KERAS_OWN or attribute.startswith("_self_"):
            continue
        name, found = attribute.lstrip("_"), attributes[attribute]
        if found is value:
            return name
        for key, item in _items(found):
            if item is value:
                return f"{name}.{key}"
    return None


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)


def _name(container: Any, layer: Any, numbers: Mapping[int, str]) -> str:
    explicit = str(layer.name).replace("/", "_")
    automatic = numbers.get(id(layer))
    if isinstance(container, (keras.Sequential, Functional)):
        return automatic or explicit
    if automatic is None and not type(container).__module__.startswith("keras."):
        return explicit
    return _own_name(container, layer) or automatic or explicit


def _renumbered(model: Any) -> dict[int, str]:
    """Return renumbered names for automatically named layers, by id."""
    numbered: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for layer in model._flatten_layers(include_self=False):
        kind = to_snake_case(type(layer).__name__)
        match = _AUTOMATIC.fullmatch(str(layer.name))
        if match is not None and match[1] == kind:
            numbered[kind].append((int(match[2] or 0), id(layer)))
    return {
        identity: f"{kind}_{number}" if number else kind
        for kind, found in numbered.items()
        for number, (_, identity) in enumerate(sorted(found))
    }


def _unique(name: str, taken: set[str]) -> str:
    """Return a unique name and add it to `taken`."""
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
