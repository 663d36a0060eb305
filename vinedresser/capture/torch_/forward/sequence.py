"""The forwards of a model in one step: whether one continues the other, and what they returned."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.copies.torch_modes import WithoutModes
from vinedresser.capture.torch_.forward.calls import NextOutput, can_be_hooked
from vinedresser.capture.torch_.losses.model_outputs import mark_outputs
from vinedresser.capture.torch_.nesting import leaves

__all__ = ["ForwardSequence"]

# Elements of an output that are kept until the next step.
_ELEMENTS = 16
# Maximum number of outputs of a step of which some are kept.
_OUTPUTS = 32


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
        # Some elements of the outputs of the step, by number of elements; None: more than are kept.
        self._samples: list[tuple[int, Tensor]] | None = []
        self._next = NextOutput(shield.guard("outputs", self._returned))

    def remove(self) -> None:
        """Remove all hooks."""
        self._next.remove()

    def begins(self) -> bool:
        """Note the start of the first forward; return whether others may continue it."""
        self._samples = []
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

    def returned(self, values: Tensor) -> bool:
        """Return whether values certainly, or perhaps, are an output of the step.

        Args:
            values: floating-point tensor [...].
        """
        if self._samples is None:
            return True
        for size, sample in self._samples:
            if size == values.numel() and sample.device == values.device:
                other = _sample(values)
                if other is None or torch.allclose(other.to(sample), sample, 1e-4, 1e-5):
                    return True
        return False

    def _wait(self, number: int) -> bool:
        """Wait for the outputs of a forward; return whether they can be seen."""
        self._outputs, self._number = [], number
        if not can_be_hooked(self._model):
            return False
        self._next.wait([self._model])
        return True

    def _returned(self, _: nn.Module, __: Any, output: Any) -> None:
        found = [one for _, one in leaves(output)]
        self._outputs = [weakref.ref(one) for one in found]
        with WithoutModes():
            mark_outputs(output, self._number)
            for one in found:
                self._keep(one)

    def _keep(self, output: Tensor) -> None:
        """Keep some elements of an output."""
        if type(output) is not Tensor:
            # Those of a distributed tensor may be elsewhere.
            self._samples = None
            return
        sample = _sample(output) if output.is_floating_point() else None
        if sample is None or self._samples is None:
            return
        self._samples.append((output.numel(), sample))
        if len(self._samples) > _OUTPUTS:
            self._samples = None


def _sample(values: Tensor) -> Tensor | None:
    """Return a copy of a few elements [n]; None if the tensor has none."""
    count = values.numel()
    if not count:
        return None
    places = torch.arange(0, count, -(-count // _ELEMENTS), device=values.device)
    return values.detach().take(places)
