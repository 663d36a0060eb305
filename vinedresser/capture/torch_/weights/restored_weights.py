"""States that are loaded into a model and are its weights themselves."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vinedresser.frameworks.script_line import script_line
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop


class RestoredWeights(LoopListener):
    """Looks for loads of a state that shares its memory with the model, so that nothing changes.

    Only those count before which the model was trained since `state_dict` was last called, and
    before which nothing has changed the weights since the latest optimizer step: a loop may write
    into such a state on purpose.

    Args:
        report: receives what was seen; see `RunRecord.breaches`.
        guard: keeps errors from the training.
    """

    def __init__(
        self,
        model: nn.Module,
        report: Callable[[dict[str, Any]], None],
        guard: Callable[[str, Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        self._model = weakref.ref(model)
        self._report = report
        # The first and the last parameter and their sums when `state_dict` was last called.
        self._ends: list[weakref.ref[Tensor]] = []
        self._taken: list[Tensor] = []
        # The versions of both after the latest optimizer step since.
        self._stepped: list[int] = []
        self.remove = listen_to_loop(self, guard)

    def state_taken(self, module: nn.Module) -> None:
        """See `LoopListener.state_taken`."""
        if module is self._model():
            # To compare those that are distributed over ranks, ranks would wait for each other.
            trained = [
                parameter
                for parameter in module.parameters()
                if parameter.requires_grad and type(parameter.detach()) is Tensor
            ]
            self._ends = [weakref.ref(one) for one in (*trained[:1], *trained[-1:])]
            self._taken, self._stepped = self._sums(), []

    def weights_loaded(self, module: nn.Module, state: Any) -> None:
        """See `LoopListener.weights_loaded`."""
        if module is self._model() and self._stepped and _is_of(state, module):
            trained = not all(map(torch.equal, self._sums(), self._taken))
            if trained and self._stepped == self._versions():
                self._report({"tensors": len(state), "where": script_line()})

    def stepped(self) -> None:
        """Note the end of an optimizer step of the model."""
        self._stepped = self._versions()

    def _versions(self) -> list[int]:
        return [one._version for end in self._ends if (one := end()) is not None]

    def _sums(self) -> list[Tensor]:
        return [one.detach().sum() for end in self._ends if (one := end()) is not None]


def _is_of(state: Any, module: nn.Module) -> bool:
    """Return whether a state has all parameters of a module, and not copies of them."""
    return isinstance(state, Mapping) and all(
        isinstance(kept := state.get(name), Tensor) and kept.data_ptr() == one.data_ptr() != 0
        for name, one in module.named_parameters()
    )
