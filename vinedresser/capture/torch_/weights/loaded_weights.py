"""Weights that were loaded, so that they may have been trained before."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop

__all__ = ["LOADED", "LoadedWeights"]


class LoadedWeights(LoopListener):
    """The modules into which a state was loaded since `start`."""

    def __init__(self) -> None:
        # By id, since a class may override comparison and hashing; None before `start`.
        self._modules: dict[int, weakref.ref[nn.Module]] | None = None

    def start(self) -> None:
        """Note each module into which a state is loaded from now on."""
        if self._modules is None:
            self._modules = {}
            listen_to_loop(self)

    def cover(self, parameters: Iterable[Tensor]) -> bool:
        """Return whether half of some parameters or more were loaded."""
        modules = [one for reference in (self._modules or {}).values() if (one := reference())]
        loaded = {id(value) for module in modules for value in module.parameters()}
        found = [id(value) in loaded for value in parameters]
        return bool(loaded) and 2 * sum(found) >= len(found) > 0

    def weights_loaded(self, module: nn.Module, _: Any) -> None:
        """See `LoopListener.weights_loaded`."""
        assert self._modules is not None
        self._modules[id(module)] = weakref.ref(module)


LOADED = LoadedWeights()
"""The loaded weights of this process."""
