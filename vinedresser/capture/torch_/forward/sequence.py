"""Noticing that a loop calls a recurrent model place by place."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, nn

from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.forward.calls import NextOutput, can_be_hooked
from vinedresser.capture.torch_.nesting import leaves

__all__ = ["ForwardSequence"]


class ForwardSequence:
    """The latest forward of a model, to tell whether the next one continues it.

    It does if one of its arguments is an output of the latest, such as a hidden state: the same
    object, since a copy may be anything. An adversary that judges real and generated rows, a
    network called with two views of a row, and the next micro-batch therefore continue nothing.

    Args:
        model: the object that the training calls.
        shield: guards the look at outputs.
    """

    def __init__(self, model: nn.Module, shield: Shield) -> None:
        self._model = model
        self._outputs: list[weakref.ref[Tensor]] = []
        self._next = NextOutput(shield.guard("outputs", self._returned))

    def remove(self) -> None:
        """Remove all hooks."""
        self._next.remove()

    def begins(self) -> bool:
        """Note the start of the first forward; return whether others may continue it."""
        self._outputs = []
        if not can_be_hooked(self._model):
            return False
        self._next.wait([self._model])
        return True

    def continues(self, arguments: Any) -> bool:
        """Note the start of a forward; return whether it continues the latest.

        Args:
            arguments: arguments of the forward, a nesting of tensors.
        """
        before = [one for reference in self._outputs if (one := reference()) is not None]
        given = leaves(arguments)
        return any(one is other for _, one in given for other in before) and self.begins()

    def _returned(self, _: nn.Module, __: Any, output: Any) -> None:
        self._outputs = [weakref.ref(one) for _, one in leaves(output)]
