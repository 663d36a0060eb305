"""How a training with torch is set up, for the run's record."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from vinedresser.capture.adapters.training_setup import TrainingSetup, described_optimizer, typed
from vinedresser.capture.torch_.names import Names, own_class, unwrapped
from vinedresser.capture.torch_.optimizers.optimizer_steps import updated
from vinedresser.capture.torch_.training_mode import dropout_rates

__all__ = ["SetupNotes", "described_loss"]


class SetupNotes:
    """What was seen of how the training of one model is set up.

    Args:
        names: of the model.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._losses: dict[str, dict[str, Any]] = {}
        # Each may be gone by now; then that is as it was last told.
        self._optimizers: list[tuple[weakref.ref[Optimizer], dict[str, Any]]] = []
        # Identities of the parameters that an optimizer had, which may be gone by now.
        self._trained: set[int] = set()

    def saw_loss(self, name: str, loss: nn.Module) -> None:
        """Note a loss module."""
        self._losses[name] = described_loss(loss)

    def saw_optimizer(self, optimizer: Optimizer) -> None:
        """Note an optimizer that updates the model."""
        self._optimizers.append((weakref.ref(optimizer), _described(optimizer)))
        self._trained |= updated([optimizer])

    def setup(self, *, begun: bool) -> TrainingSetup:
        """Return what is known so far.

        Args:
            begun: a step was seen; before that, an optimizer may be yet to come.
        """
        # Parameters may have come to one, or got their shapes.
        for place, (reference, _) in enumerate(self._optimizers):
            optimizer = reference()
            if optimizer is not None:
                self._optimizers[place] = reference, _described(optimizer)
                self._trained |= updated([optimizer])
        parameters = self._names.parameters()
        told = begun or bool(self._optimizers)
        return TrainingSetup(
            dict(self._losses),
            # Of one optimizer there is one reference, whoever asks for it.
            {id(reference): described for reference, described in self._optimizers},
            [one.weight for one in parameters if not one.value.requires_grad],
            [
                one.weight
                for one in parameters
                if told and one.value.requires_grad and id(one.value) not in self._trained
            ],
            dropout_rates(self._names.modules()),
        )


def described_loss(loss: nn.Module) -> dict[str, Any]:
    """Return a loss module for the record.

    Of its buffers, such as the weights of classes, it returns whether they are set.
    """
    inner = unwrapped(loss)
    settings = {key: value for key, value in vars(inner).items() if _is_setting(key)}
    settings |= {key: value is not None for key, value in inner._buffers.items()}
    return typed(own_class(inner).__name__, settings)


def _is_setting(key: str) -> bool:
    return not key.startswith("_") and key != "training"


def _described(optimizer: Optimizer) -> dict[str, Any]:
    return described_optimizer(type(optimizer).__name__, optimizer.defaults, _sizes(optimizer))


def _sizes(optimizer: Optimizer) -> Iterable[int]:
    """Yield the elements of each tensor that an optimizer updates."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield 0 if is_lazy(parameter) else parameter.numel()
