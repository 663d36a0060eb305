"""What is known while a model is traced: layers of labels, sites, roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from vinedresser.frameworks.torch_.call import Call
from vinedresser.pruning.group import Indices, Role
from vinedresser.pruning.torch_.labels import Labels

__all__ = ["Attribute", "Context", "Layer", "Made", "Site"]


class Layer(NamedTuple):
    """Labels of the slices of a tensor along one dimension.

    Attributes:
        labels: int64 [length of the dimension].
    """

    dim: int
    labels: Indices


class Made(NamedTuple):
    """How the channels of an axis are made.

    Attributes:
        order: number of the call.
        kind: by what kind of layer.
        in_training: whether only in training mode.
    """

    order: int
    kind: Literal["filters", "units"]
    in_training: bool


class Attribute(NamedTuple):
    """An integer attribute of a module that counts channels.

    Attributes:
        path: module and attribute ("block.conv.groups").
    """

    path: str
    labels: Indices


@dataclass
class Site:
    """A call that leaves open how its result shrinks, or may contain a constant size.

    Attributes:
        order: number of the call.
        where: the call and its module, for messages.
        labels: labels of the channels that pass.
        choices: number of ways in which the result may shrink.
        attributes: attributes of the module that equal a size of the result.
    """

    order: int
    where: str
    labels: Indices
    choices: int = 1
    attributes: list[Attribute] = field(default_factory=list)


class _Known(NamedTuple):
    tensor: torch.Tensor  # kept alive: its id is the key
    layers: tuple[Layer, ...]
    from_input: bool
    noise: bool


class Context:
    """The state of one trace.

    Every tensor has layers, at most one per dimension. A slice of a tensor is removed with its
    label; slices without a label stay.

    Args:
        model: the model, in evaluation mode; its modules are only read.
        tensors: parameters and buffers by name.
        choices: which way to take at sites, by number of the call; the first if it is absent.
        heads: numbers of the calls whose channels are units of attention heads.
        scopes: names of modules; the labels that their code can read are noted.

    Attributes:
        in_training: whether the model runs in training mode.
        visible: labels that the code of the scopes can read.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        tensors: Mapping[str, torch.Tensor],
        choices: Mapping[int, int],
        heads: frozenset[int],
        scopes: frozenset[str] = frozenset(),
    ) -> None:
        self.in_training = False
        self.visible: list[Indices] = []
        self._scopes = scopes
        self.modules = dict(model.named_modules())
        self.path: list[str] = [""]
        self.order = 0
        self.choices = choices
        self.heads = set(heads)
        self.sites: dict[int, Site] = {}
        self.head_labels: list[Indices] = []
        self.made: dict[int, Made] = {}
        self.roles: dict[int, Role] = {}
        self.uses: dict[str, int] = {}
        self.required: dict[str, Attribute] = {}
        self.batch = 1
        self._known: dict[int, _Known] = {}
        self._storages: dict[int, int] = {}
        kernels = {
            f"{path}.weight".removeprefix(".")
            for path, module in self.modules.items()
            if isinstance(module, torch.nn.modules.conv._ConvNd)
        }
        # Sizes of kernels are no channels.
        shapes = {
            name: tuple(tensor.shape[:2] if name in kernels else tensor.shape)
            for name, tensor in tensors.items()
        }
        self.labels = Labels(shapes)
        layers: dict[str, list[Layer]] = {name: [] for name in tensors}
        for axis in self.labels.axes:
            numbers = np.arange(axis.first, axis.first + axis.size, dtype=np.int64)
            layers[axis.tensor].append(Layer(axis.axis, numbers))
        for name, tensor in tensors.items():
            self.put(tensor, layers[name], from_input=False)

    # Layers of tensors

    def put(
        self,
        tensor: torch.Tensor,
        layers: Sequence[Layer],
        *,
        from_input: bool,
        noise: bool = False,
    ) -> None:
        """Record what is known of a tensor; layers in which nothing varies are locked.

        Args:
            from_input: whether it depends on the model's input.
            noise: whether it was drawn at random, maybe in a size that follows that of others.
        """
        kept: dict[int, Layer] = {}
        for layer in layers:
            if layer.dim in kept or len(layer.labels) == 1:
                self.lock(layer.labels, "its channels are mixed with others")
            elif layer.labels.any():
                kept[layer.dim] = layer
        known = self._known.get(id(tensor))
        storage = tensor.untyped_storage()._cdata
        self._storages[storage] = self._storages.get(storage, 0) + (known is None)
        self._known[id(tensor)] = _Known(
            tensor,
            tuple(kept.values()),
            from_input or (known is not None and known.from_input),
            noise,
        )

    def show(self, scope: str, values: Any) -> None:
        """Note that the code of a module can read the tensors among nested values."""
        if scope in self._scopes:
            leaves = pytree.tree_leaves(values)
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            self.visible += [one.labels for tensor in tensors for one in self.of(tensor)]

    def forget_tensors(self) -> None:
        """Free the tensors and modules of a finished trace; labels, sites and roles remain."""
        self._known.clear()
        self._storages.clear()
        self.modules.clear()

    def shares_memory(self, tensor: torch.Tensor) -> bool:
        """Return whether another known tensor has the same storage."""
        return self._storages.get(tensor.untyped_storage()._cdata, 0) > 1

    def of(self, tensor: torch.Tensor) -> tuple[Layer, ...]:
        """Return the layers of a tensor."""
        known = self._known.get(id(tensor))
        return known.layers if known is not None else ()

    def at(self, tensor: torch.Tensor, dim: int) -> Indices | None:
        """Return the labels along a dimension, or None if there are none."""
        dim %= max(1, tensor.ndim)
        return next((one.labels for one in self.of(tensor) if one.dim == dim), None)

    def from_input(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor depends on the model's input."""
        known = self._known.get(id(tensor))
        return known is not None and known.from_input

    def is_noise(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor was drawn at random, or made of such tensors only."""
        known = self._known.get(id(tensor))
        return known is not None and known.noise

    def fixed(self, tensor: torch.Tensor, dim: int) -> bool:
        """Return whether a dimension keeps its length: it has no labels, and is not expanded.

        That of noise may follow another tensor's, which a trial shows.
        """
        longer = tensor.shape[dim] > 1 and tensor.stride(dim) != 0
        return longer and self.at(tensor, dim) is None and not self.is_noise(tensor)

    # Labels

    def here(self, what: str) -> str:
        """Return what happens, with the module in which it happens."""
        module = self.modules[self.path[-1]]
        name = f"{self.path[-1]} ({type(module).__name__})" if self.path[-1] else "the model"
        return f"{what} in {name}"

    def lock(self, labels: Indices | None, what: str) -> None:
        """Lock labels because of what happens to them in this module."""
        if labels is not None:
            self.labels.lock(labels, self.here(what))

    def lock_all(self, tensor: torch.Tensor, what: str, dims: Sequence[int] | None = None) -> None:
        """Lock the layers of a tensor, or those of some dimensions."""
        for layer in self.of(tensor):
            if dims is None or layer.dim in dims:
                self.lock(layer.labels, what)

    def unite(self, one: Indices, other: Indices, what: str) -> Indices:
        """Unite labels of equal length; where only one has a label, it is locked.

        Returns:
            The labels of either.
        """
        both = (one > 0) & (other > 0)
        self.labels.unite(one[both], other[both])
        alone = np.where(both, 0, one + other)
        if alone.any():
            self.lock(alone, what)
        united: Indices = np.where(one > 0, one, other)
        return united

    def meet(self, one: Indices | None, other: Indices | None, what: str) -> Indices | None:
        """Unite labels of two axes that have to keep the same length.

        If one of them has no labels, the other is locked, and the result is None.
        """
        if one is None or other is None or len(one) != len(other):
            self.lock(one, what)
            self.lock(other, what)
            return None
        return self.unite(one, other, what)

    def tie_parts(self, labels: Indices, parts: int) -> Indices:
        """Unite the labels at the same place of equal parts; return those of one part."""
        table = labels.reshape(parts, -1)
        for row in table[1:]:
            self.unite(table[0], row, "parts of equal size")
        part: Indices = table[0]
        return part

    def tie_bias(self, bias: str) -> None:
        """Unite the labels of a bias that does not run with those that its layer makes."""
        owner = bias.rpartition(".")[0]
        axis = int(getattr(self.modules[owner], "transposed", False))
        found = {
            one.tensor.rpartition(".")[2]: np.arange(
                one.first, one.first + one.size, dtype=np.int64
            )
            for one in self.labels.axes
            if (one.tensor, one.axis) in {(bias, 0), (f"{owner}.weight", axis)}
        }
        self.meet(found.get("bias"), found.get("weight"), f"{bias}, which does not run,")
        self.mark(found.get("bias"), "bias")

    # Roles

    def mark(self, labels: Indices | None, role: Role) -> None:
        """Note what the axes of labels mean, unless it is known already."""
        if labels is not None:
            for place in self.labels.owners(labels):
                self.roles.setdefault(place, role)

    def make(self, labels: Indices | None, kind: Literal["filters", "units"]) -> None:
        """Note that a layer makes the channels with these labels."""
        self.mark(labels, "filter")
        if labels is not None:
            for place in self.labels.owners(labels):
                self.made.setdefault(place, Made(self.order, kind, self.in_training))

    def lock_made_in_training(self) -> None:
        """Lock channels that only training mode makes: without them, a prediction costs the same.

        Criteria do not measure them, either. The channels of the predictions that they read remain
        free.
        """
        made = {True: [np.zeros(0, dtype=np.int64)], False: [np.zeros(0, dtype=np.int64)]}
        for place, one in self.made.items():
            axis = self.labels.axes[place]
            numbers = np.arange(axis.first, axis.first + axis.size, dtype=np.int64)
            made[one.in_training].append(numbers)
        only, others = (np.concatenate(made[key]) for key in (True, False))
        shared = np.isin(self.labels.roots(only), self.labels.roots(others))
        self.labels.lock(only[~shared], "runs only in training mode")

    def use(self, labels: Indices | None, times: int) -> None:
        """Count multiplications with a weight that has these labels, for the whole batch."""
        if labels is None or self.in_training:
            return
        for place in self.labels.owners(labels)[:1]:
            name = self.labels.axes[place].tensor
            self.uses[name] = self.uses.get(name, 0) + times

    # Sites

    def choose(self, call: Call, labels: Indices, choices: int) -> int:
        """Return which way to take where a result may shrink in several ways."""
        site = self.sites.setdefault(self.order, Site(self.order, self.here(call.name), labels))
        site.labels = np.union1d(site.labels, labels)
        site.choices = max(site.choices, choices)
        return min(self.choices.get(self.order, 0), choices - 1)

    def sized(self, call: Call, size: int, labels: Indices) -> None:
        """Note a size that the user's code may contain as a number or as an attribute."""
        path = self.path[-1]
        # Code of torch, which takes its sizes from the input.
        known = torch.nn.Linear | torch.nn.modules.conv._ConvNd | torch.nn.Flatten
        if isinstance(self.modules[path], known):
            return
        self.choose(call, labels, 1)
        for name, value in vars(self.modules[path]).items():
            if type(value) is int and value == size:
                self.sites[self.order].attributes.append(
                    Attribute(f"{path}.{name}".removeprefix("."), labels)
                )

    def count_by(self, call: Call, owner: Indices | None, name: str, labels: Indices) -> None:
        """Note that an attribute of the layer that owns labels counts channels."""
        self.sized(call, len(labels), labels)
        places = self.labels.owners(owner) if owner is not None else []
        paths = [self.labels.axes[place].tensor.rpartition(".")[0] for place in places[:1]]
        for path in [self.path[-1], *(one.partition(".parametrizations")[0] for one in paths)]:
            if getattr(self.modules.get(path), name, None) == len(labels):
                attribute = Attribute(f"{path}.{name}".removeprefix("."), labels)
                self.required[attribute.path] = attribute

    def is_units_of_heads(self, tensor: torch.Tensor) -> None:
        """Note that the units of attention heads lie along a dimension, split from the heads."""
        for layer in self.of(tensor):
            roots = self.labels.roots(layer.labels[layer.labels > 0])
            for site in self.sites.values():
                if site.choices > 1 and np.isin(self.labels.roots(site.labels), roots).any():
                    self.heads.add(site.order)
