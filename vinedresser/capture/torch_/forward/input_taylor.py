"""Capturing first-order Taylor terms of the loss for the channels that a module reads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vinedresser.capture.config.capture_config import Ask
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.copies.torch_copier import Keep
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.taylor import taylor_terms


class InputTaylor:
    """Waits for the gradients of module inputs and keeps their products with the inputs.

    Args:
        keep: shielded `TensorCopier.keep`.
        is_open: returns whether a recording's step has not ended.
        shield: guards the callback and reports what is not captured.
    """

    def __init__(self, keep: Keep, is_open: Callable[[Recording], bool], shield: Shield) -> None:
        self._keep = keep
        self._is_open = is_open
        self._report = shield.report
        self._take = shield.guard("the gradient for", self._take_product, names=0)

    def await_gradient(
        self, recording: Recording, name: str, value: Tensor, ask: Ask, module: nn.Module
    ) -> None:
        """Keep the product of an input and its gradient when the backward computes it.

        Args:
            recording: receives it, if its step has not ended by then.
            name: full name of the product.
            value: the input; see `taylor_terms`.
            module: module that reads it.
        """
        if not value.requires_grad or isinstance(value, nn.Parameter):
            # A parametrization reads a parameter, which is no activation.
            return
        # The hook must not keep the input's graph alive.
        plain = value.detach()
        if getattr(module, "inplace", False):
            plain = plain.clone()
        last = isinstance(module, nn.Linear)
        version = plain._version

        def arrived(gradient: Tensor) -> None:
            if plain._version != version:
                self._report(f"{name}: not captured: the input was overwritten before its gradient")
            elif self._is_open(recording):
                self._take(name, recording, plain, gradient, ask=ask, last=last)

        value.register_hook(arrived)

    def _take_product(
        self,
        name: str,
        recording: Recording,
        value: Tensor,
        gradient: Tensor,
        *,
        ask: Ask,
        last: bool,
    ) -> None:
        with torch.no_grad(), WithoutModes():
            terms = taylor_terms(value, gradient.detach(), last=last)
            self._keep(recording, name, terms, ask)
