"""The forwards of a model in one step: whether one continues the other, and what they returned."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, nn

from vinedresser.capture.shield import Shield
from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.module_calls import NextOutput, can_be_hooked
from vinedresser.frameworks.torch_.nesting import leaves


class ForwardSequence:
    """The forwards of a model in a step.

    A forward continues the latest one if one of its arguments is an output of the latest, such as a
    hidden state: the same object, since a copy may be anything. An adversary that judges real and
    generated rows, a network called with two views of a row, and the next micro-batch therefore
    continue nothing. Outputs are marked with the number of their forward.

    Args:
        model: the object that the training calls.
        shield: guards the look at outputs.
    """

    def __init__(self, model: nn.Module, shield: Shield) -> None:
        self._model = model
        self._number = 0
        self._outputs: list[weakref.ref[Tensor]] = []
        self._next = NextOutput(shield.guard("outputs", self._returned))

    def remove(self) -> None:
        """Remove all hooks."""
        self._next.remove()

    def begins(self) -> bool:
        """Note the start of the first forward; return whether others may continue it."""
        return self._wait(1)

    def continues(self, arguments: Any, number: int) -> bool:
        """Note the start of a forward; return whether it continues the latest.

        Args:
            arguments: arguments of the forward, a nesting of tensors.
            number: its number in the step, from 1.
        """
        before = [one for reference in self._outputs if (one := reference()) is not None]
        given = leaves(arguments)
        continued = any(one is other for _, one in given for other in before)
        return self._wait(number) and continued

    def _wait(self, number: int) -> bool:
        """Wait for the outputs of a forward; return whether they can be seen."""
        self._outputs, self._number = [], number
        if not can_be_hooked(self._model):
            return False
        self._next.wait([self._model])
        return True

    def _returned(self, _: nn.Module, __: Any, output: Any) -> None:
        self._outputs = [weakref.ref(one) for _, one in leaves(output)]
        with WithoutModes():
            mark_outputs(output, self._number)
