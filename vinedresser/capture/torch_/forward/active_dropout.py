"""Seeing that a model in evaluation mode drops units, or normalises by the rows of a batch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.forward.forward_hooks import ForwardHooks, is_compiled
from vinedresser.capture.torch_.forward.function_calls import FunctionCalls, functions_can_be_seen
from vinedresser.capture.torch_.forward.hook_selection import fused_modules, runs_only_known_code
from vinedresser.frameworks.torch_.names import Names
from vinedresser.frameworks.torch_.nesting import leaves

_DROPOUTS = (
    *(functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d),
    *(functional.alpha_dropout, functional.feature_alpha_dropout),
)
# Functions, with the place, name and default of the argument that turns them on.
_SWITCHES = MappingProxyType(
    {
        functional.scaled_dot_product_attention: (4, "dropout_p", 0.0),
        torch.dropout: (2, "train", False),
        **dict.fromkeys(_DROPOUTS, (2, "training", True)),
    }
)
# Functions that normalise, with the place of their running mean; `training` is the sixth argument.
_NORMS = MappingProxyType({functional.batch_norm: 1, torch.batch_norm: 3})
_NAMES = MappingProxyType({function: function.__name__ for function in (*_SWITCHES, *_NORMS)})


class _Input(NamedTuple):
    """What identifies the first tensor of some inputs, without keeping it alive."""

    owner: weakref.ref[Tensor]
    place: int
    shape: tuple[int, ...]

    def is_again(self, other: _Input | None) -> bool:
        """Return whether other inputs have the same tensor."""
        owner = self.owner()
        if owner is None or other is None or other.owner() is not owner:
            return False
        return (self.place, self.shape) == (other.place, other.shape)


class ActiveDropout:
    """Records ``state/dropped`` and ``state/batched`` in evaluations in evaluation mode.

    The first is 1 if functions drop units in the first forward, and less if later forwards get the
    same inputs, as those of Monte Carlo dropout do, which is intended; so is dropping the inputs
    themselves, as a denoising autoencoder does. The second is 1 if a function normalises by the
    statistics of the batch although it has running ones. Modules of torch do what their mode says,
    so a model of nothing else is not looked at. Nor is one that is compiled, or for which torch has
    a fused kernel: a function mode would change what runs.

    Args:
        root: the model that is called, with its wrappers.
        names: names of the user's model inside.
        hooks: ends the observation with the forward.
        shield: guards it.

    Attributes:
        names: the full names of the captured scalars.
    """

    def __init__(self, root: nn.Module, names: Names, hooks: ForwardHooks, shield: Shield) -> None:
        self.name, self._batched = self.names = [
            f"state/{names.prefix}{word}" for word in ("dropped", "batched")
        ]
        self._root, self._names, self._hooks = root, names, hooks
        self._before = shield.guard("a call of", self._look, names=1)
        self._functions: FunctionCalls | None = None
        # The latest evaluation, whether it dropped units, and the inputs of its first forward.
        self._recording: weakref.ref[Recording] | None = None
        self._found = False
        self._first: _Input | None = None

    def called(self, recording: Recording, args: Any, kwargs: Any) -> None:
        """Note the start of a forward of an evaluation; its hooks have been installed.

        Args:
            args: positional arguments of the model, a nesting of tensors.
        """
        if self._recording is not None and recording is self._recording():
            if self._found and self._first and self._first.is_again(_input(args, kwargs)):
                recording.add_scalar(self.name, 0.0)
            return
        self._recording, self._found = weakref.ref(recording), False
        if recording.due.reaches("state") and recording.due.ask(self.name) and self._can_look():
            self._first = _input(args, kwargs)
            self._functions = FunctionCalls(self._before, _ignore, _NAMES)
            self._hooks.observe(self._functions)

    def _can_look(self) -> bool:
        modules = [module for _, module in self._names.modules()]
        compiling = self._functions is not None and self._functions.compiling
        return not (
            compiling
            or any(module.training for module in modules)
            or runs_only_known_code(modules)
            or fused_modules(modules)
            or is_compiled(self._root)
            or not functions_can_be_seen()
        )

    def _look(
        self, function: Callable[..., Any], _: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Look at a call of a function that can drop units, or normalise."""
        recording = None if self._recording is None else self._recording()
        if recording is None:
            return
        if function in _NORMS:
            place = _NORMS[function]
            mean = args[place] if len(args) > place else kwargs.get("running_mean")
            on = args[5] if len(args) > 5 else kwargs.get("training", False)
            if on and mean is not None:
                recording.add_scalar(self._batched, 1.0)
            return
        place, name, usual = _SWITCHES[function]
        on = args[place] if len(args) > place else kwargs.get(name, usual)
        share = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
        some = function is functional.scaled_dot_product_attention or share > 0
        if not (on and some) or self._found or self._is_input(args, kwargs):
            return
        self._found = True
        recording.add_scalar(self.name, 1.0)

    def _is_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether a function is given the first input of the model."""
        given = _input(args, kwargs)
        return given is not None and given.is_again(self._first)


def _ignore(_: str, __: Any) -> None:
    """Ignore what a function returned."""


def _input(args: Any, kwargs: Any) -> _Input | None:
    """Return what identifies the first tensor of some inputs, also if it is a slice made anew."""
    for _, tensor in leaves((args, kwargs)):
        owner = tensor if tensor._base is None else tensor._base
        return _Input(weakref.ref(owner), tensor.data_ptr(), tuple(tensor.shape))
    return None
