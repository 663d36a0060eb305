"""Gradients that only standing queries read, without a recording of the step."""

from __future__ import annotations

import weakref

import torch
from torch import nn
from torch.optim import Optimizer

from vinedresser.capture.config.capture_config import Due
from vinedresser.capture.recording.recording import PlainStep
from vinedresser.capture.torch_.copies.live_tensors import LiveTensors
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.names import NamedParameter, Names
from vinedresser.frameworks.torch_.optimizers import updated
from vinedresser.frameworks.torch_.views import plain_tensor


class AskedGradients:
    """Takes the gradients of a plain step before an optimizer consumes them.

    Only in the usual case: the optimizer updates all parameters that have a gradient, which nobody
    scales. In all others, a recording takes them.

    Args:
        names: names of the model's tensors.
        live: keeps tensors for standing queries.
    """

    def __init__(self, names: Names, live: LiveTensors) -> None:
        self._names = names
        self._live = live
        self._stepped: weakref.ref[Optimizer] | None = None
        # For what the next two were made: what is due, all parameters, and ids of those updated.
        self._made_for: tuple[Due | None, list[NamedParameter], set[int]] = (None, [], set())
        self._asked: list[tuple[str, nn.Parameter]] = []
        self._others: list[nn.Parameter] = []

    @property
    def stepped(self) -> bool:
        """Whether an optimizer of the model is known to take steps."""
        return self._stepped is not None and self._stepped() is not None

    def saw(self, optimizer: Optimizer) -> None:
        """Note that an optimizer of the model takes a step."""
        self._stepped = weakref.ref(optimizer)

    def take(self, plain: PlainStep, optimizer: Optimizer) -> bool:
        """Take the gradients; return False, without any, if a recording has to.

        Args:
            optimizer: optimizer that is about to step.
        """
        self.saw(optimizer)
        # Set by a GradScaler for a fused optimizer, which unscales or skips by itself.
        if getattr(optimizer, "found_inf", None) is not None:
            return False
        if getattr(optimizer, "grad_scale", None) is not None:
            return False
        self._look(plain.due, optimizer)
        if any(other.grad is not None for other in self._others):
            return False
        self._live.begin_step(optimizer)
        with WithoutModes():
            for name, parameter in self._asked:
                gradient = parameter.grad
                if gradient is not None:
                    self._live.keep(plain.live, name, _plain(gradient))
        return True

    def _look(self, due: Due, optimizer: Optimizer) -> None:
        """List the parameters again if these, the optimizer's or the queries have changed."""
        listed, ids = self._names.parameters(), updated([optimizer])
        known, parameters, before = self._made_for
        if known is due and parameters is listed and before == ids:
            return
        self._made_for = due, listed, ids
        owned = [one for one in listed if id(one.value) in ids]
        self._asked = [(one.gradient, one.value) for one in owned if due.ask(one.gradient)]
        self._others = [one.value for one in listed if id(one.value) not in ids]


def _plain(gradient: torch.Tensor) -> torch.Tensor:
    """Return a gradient as by `plain_tensor`, which takes longer for the usual ones."""
    usual = type(gradient) is torch.Tensor and gradient.layout is torch.strided
    if usual and not gradient.requires_grad and not gradient.is_complex():
        return gradient
    return plain_tensor(gradient)
