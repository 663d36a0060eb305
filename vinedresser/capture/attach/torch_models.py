"""The watched torch models of a training and their names."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from vinedresser.capture.attach.variables import variable
from vinedresser.frameworks.torch_.bare_tensors import BareTensors

__all__ = ["WatchedModels", "holders", "in_modules", "parameters"]

_EXPORT = "torch.export."


class _Watched(NamedTuple):
    """A watched model.

    Attributes:
        name: name under which it is watched; None for no name.
        optimizers: the optimizers that update it.
    """

    module: weakref.ref[nn.Module]
    name: str | None
    optimizers: weakref.WeakSet[Optimizer]


class WatchedModels:
    """Weak references to the models of one training."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []
        # By id, since a module may override comparison and hashing.
        self._known: dict[int, weakref.ref[nn.Module]] = {}
        # The names of the losses of optimizers of several models; a loss keeps its name.
        self._loss_names: weakref.WeakKeyDictionary[Optimizer, str] = weakref.WeakKeyDictionary()

    def __bool__(self) -> bool:
        """Return whether any model is watched."""
        return bool(self._watched)

    def known(self, module: nn.Module) -> bool:
        """Return whether a module is part of a watched model or excluded."""
        reference = self._known.get(id(module))
        return reference is not None and reference() is module

    def exclude(self, module: nn.Module) -> None:
        """Exclude a module and its submodules from detection."""
        for part in module.modules():
            self._known[id(part)] = weakref.ref(part)

    def add(self, module: nn.Module, name: str | None, optimizers: Iterable[Optimizer]) -> None:
        """Add a watched model."""
        self.exclude(module)
        self._watched.append(_Watched(weakref.ref(module), name, weakref.WeakSet(optimizers)))

    def add_optimizer(self, module: nn.Module, optimizer: Optimizer) -> None:
        """Add an optimizer to a watched model."""
        for one in self._watched:
            if one.module() is module:
                one.optimizers.add(optimizer)

    def covers(self, module: nn.Module, optimizers: Iterable[Optimizer]) -> bool:
        """Return whether a watched model with some optimizers has all parameters of a module.

        Layers of Keras are no submodules of their model in torch.
        """
        own, wanted = set(map(id, module.parameters())), set(optimizers)
        return any(
            model is not None
            and wanted.issubset(one.optimizers)
            and own.issubset(map(id, model.parameters()))
            for one in self._watched
            for model in (one.module(),)
        )

    def updated_by(self, optimizer: Optimizer) -> list[nn.Module]:
        """Return the watched models with a parameter that an optimizer updates."""
        ids = set(map(id, parameters(optimizer)))
        models = [one.module() for one in self._watched]
        return [
            model
            for model in models
            if model is not None and not ids.isdisjoint(map(id, model.parameters()))
        ]

    def has_other_optimizer(self, module: nn.Module, optimizer: Optimizer) -> bool:
        """Return whether another optimizer of a watched model still exists."""
        return any(
            other is not optimizer
            for one in self._watched
            if one.module() is module
            for other in one.optimizers
        )

    def only_bare(self) -> bool:
        """Return whether all models are bare tensors; also if there is none."""
        return all(isinstance(one.module(), BareTensors) for one in self._watched)

    def in_training(self) -> bool:
        """Return whether an optimizer of a watched model still exists."""
        return any(one.optimizers for one in self._watched)

    def loss_name(self, optimizer: Optimizer | None) -> str:
        """Return the name of the loss that an optimizer minimizes.

        It is that of the only model which the optimizer updates. Of several ones it is "loss", or
        all their names if other models are known by then, such as adversaries with a loss of their
        own.
        """
        names = [one.name for one in self._watched if optimizer in one.optimizers]
        if optimizer is None or not names or None in names:
            return "loss"
        if len(names) == 1:
            return str(names[0])
        several = "+".join(map(str, names)) if len(names) < len(self._watched) else "loss"
        return self._loss_names.setdefault(optimizer, several)

    def name(
        self, module: nn.Module, updated: Iterable[torch.Tensor], otherwise: str = ""
    ) -> str | None:
        """Return the name for a model; None if it is the only one.

        The name is the model's path in its outermost module, else the name of a variable in the
        calling code, else the given one, else that of its class.

        Args:
            updated: all parameters that the optimizers of the training update.
            otherwise: name of a model that no variable holds.
        """
        own = set(map(id, module.parameters()))
        if not self._watched and own.issuperset(map(id, updated)):
            return None
        wanted = _path(module) or variable(module) or otherwise or type(module).__name__
        taken = {one.name for one in self._watched}
        names = (wanted if number == 1 else f"{wanted}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in taken)


def parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the parameters of an optimizer."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def holders(updated: Iterable[torch.Tensor]) -> list[nn.Module]:
    """Return the outermost modules that contain any of some parameters."""
    ids = set(map(id, updated))
    return _outermost(
        module for module in _all_modules() if not ids.isdisjoint(map(id, module.parameters()))
    )


def in_modules() -> bool:
    """Return whether any module of the process has a parameter."""
    return any(next(module.parameters(), None) is not None for module in _all_modules())


def _all_modules() -> Iterator[nn.Module]:
    """Yield every initialized module of the process.

    Wrappers that torch.export leaves behind are omitted: nothing calls them.
    """
    for one in gc.get_objects():
        kind = type(one)
        # isinstance would call the code of objects with a dynamic __class__.
        if (
            nn.Module in kind.__mro__
            and "_modules" in one.__dict__
            and not kind.__module__.startswith(_EXPORT)
        ):
            yield one


def _outermost(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the modules that are not part of another one."""
    found = list(modules)
    inside = {id(part) for one in found for part in one.modules() if part is not one}
    return [one for one in found if id(one) not in inside]


def _path(module: nn.Module) -> str:
    """Return the path of a module in its outermost module; "" if it is the outermost."""
    around = [one for one in _all_modules() if any(part is module for part in one.modules())]
    for one in _outermost(around):
        for path, part in one.named_modules():
            if part is module:
                return str(path)
    return ""
