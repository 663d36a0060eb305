"""The setup of a torch training for the run's record."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from vinedresser.capture.adapters.training_setup import (
    TrainingSetup,
    described_optimizer,
    says_more,
    typed,
)
from vinedresser.capture.shield import Shield
from vinedresser.capture.torch_.losses.custom_losses import custom_function
from vinedresser.capture.torch_.modules import dropout_rates
from vinedresser.capture.torch_.optimizers.remade_optimizers import MADE
from vinedresser.capture.torch_.weights.fresh_weights import fresh_weights
from vinedresser.capture.torch_.weights.loaded_weights import LOADED
from vinedresser.capture.torch_.weights.model_graph import has_redundant_weights, model_graph
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.modes import WithoutModes
from vinedresser.frameworks.torch_.names import NamedParameter, Names, own_class, unwrapped
from vinedresser.frameworks.torch_.optimizers import updated

__all__ = ["SetupNotes", "described_loss"]

# Backward passes that may not reach the model, such as those of its adversary.
_MOST_BACKWARDS = 8


class SetupNotes(LoopListener):
    """The observed setup of one model's training.

    Args:
        names: names of the model's tensors.
        shield: guards the look at the graph.
    """

    def __init__(self, names: Names, shield: Shield) -> None:
        self._names = names
        # Full names of the weights in the order of the forward, and of those of a linear model.
        self._order: list[str] = []
        self._linear: list[str] = []
        self._backwards = 0
        self.remove = listen_to_loop(self, shield.guard)
        self._losses: dict[str, dict[str, Any]] = {}
        # Names of custom losses whose functions are not known yet.
        self._custom: set[str] = set()
        # Weak references with the latest description, which remains when the optimizer is gone.
        self._optimizers: list[tuple[weakref.ref[Optimizer], dict[str, Any]]] = []
        # Ids of the parameters of the last one, and how many have replaced each other there.
        self._last: set[int] = set()
        self._made = 1
        # Whether the labels of a loss belong to the captured inputs.
        self._paired: dict[str, bool] = {}
        # Ids of the parameters that any optimizer had.
        self._trained: set[int] = set()
        # Whether weights or the state of an optimizer were loaded before the first step.
        self._loaded = False
        # Activation whose result a loss is given.
        self._activations: dict[str, str] = {}
        self._breaches: dict[str, dict[str, Any]] = {}

    def saw_loss(self, name: str, loss: nn.Module) -> None:
        """Note a loss module."""
        self._losses[name] = described_loss(loss)
        if self._losses[name].get("custom"):
            self._custom.add(name)

    def saw_loss_value(self, name: str, value: Any, arguments: tuple[Any, ...]) -> bool:
        """Note a value of a loss module; return whether it tells the function of a custom one.

        Args:
            arguments: arguments of the loss, nestings of tensors.
        """
        if name not in self._custom:
            return False
        # Before, so that a failure is the last one.
        self._custom.discard(name)
        function = custom_function(value, arguments)
        if function is None:
            self._custom.add(name)
        self._losses[name] |= function or {}
        return bool(function)

    def saw_loss_function(self, name: str, setup: dict[str, Any]) -> bool:
        """Note which function a loss is computed by; return whether that is new."""
        new = says_more(setup, self._losses.get(name))
        if new:
            self._losses[name] = setup
        return new

    def ignored_label(self, name: str) -> int:
        """Return the label that a loss leaves out; by default, PyTorch's -100."""
        settings = self._losses.get(name, {}).get("settings", {})
        return int(settings.get("ignore_index", -100))

    def saw_predictions(self, name: str, activation: str) -> bool:
        """Note what a loss is given; return whether that is new.

        Args:
            activation: activation whose result it is given; "" if none or unknown.
        """
        if not activation or name in self._activations:
            return False
        self._activations[name] = activation
        return True

    def saw_labels(self, name: str, *, paired: bool) -> bool | None:
        """Note labels of a loss before they are recorded.

        Args:
            paired: whether their rows are those of the captured inputs.

        Returns:
            Whether this is the first time and they are not; None if they must not be recorded,
            since others were paired.
        """
        first = name not in self._paired
        known = self._paired.setdefault(name, paired)
        return None if known and not paired else first and not paired

    def saw_optimizer(self, optimizer: Optimizer) -> bool:
        """Note an optimizer that updates the model; return whether the record is to tell it.

        One that is made anew, such as in each epoch, replaces the one before; the record tells
        every doubling of their number.
        """
        ids = updated([optimizer])
        anew = bool(self._optimizers) and self._optimizers[-1][0]() is None and ids == self._last
        if anew:
            self._optimizers.pop()
        self._made = self._made + 1 if anew else 1
        self._optimizers.append((weakref.ref(optimizer), _described(optimizer)))
        self._last = ids
        self._trained |= ids
        return self._made & (self._made - 1) == 0

    def saw_breach(self, rule: str, breach: Mapping[str, Any], step: int) -> bool:
        """Note what is wrong in any training; return whether it is the first such thing.

        Args:
            rule: name of the rule that reports it.
            breach: see `RunRecord.breaches`.
            step: number of the train step.
        """
        if rule in self._breaches:
            return False
        self._breaches[rule] = {**breach, "step": step}
        return True

    def backward_begins(self, losses: Sequence[Any]) -> None:
        """Look at the graph of the first backward pass that reaches the model."""
        self._backwards += 1
        named = {id(parameter.value): parameter for parameter in self._names.parameters()}
        with WithoutModes():
            graph = model_graph(losses, {key: one.weight for key, one in named.items()})
        if graph is not None:
            self._order = list(graph.order)
            values = {one.weight: one.value for one in named.values()}
            if has_redundant_weights([values[name] for name in graph.linear]):
                self._linear = list(graph.linear)
        if graph is not None or self._backwards >= _MOST_BACKWARDS:
            self.remove()

    def setup(self, *, begun: bool) -> TrainingSetup:
        """Return the setup known so far.

        Args:
            begun: whether a step was seen; before, more optimizers may appear.
        """
        # Optimizers may have received parameters, or lazy parameters their shapes.
        for place, (reference, _) in enumerate(self._optimizers):
            optimizer = reference()
            if optimizer is not None:
                self._optimizers[place] = reference, _described(optimizer)
                self._trained |= updated([optimizer])
        parameters = self._names.parameters()
        if not begun:
            alive = [one for reference, _ in self._optimizers if (one := reference()) is not None]
            values = [parameter.value for parameter in parameters if parameter.value.requires_grad]
            self._loaded |= any(one.state for one in alive) or LOADED.cover(values)
        told = begun or bool(self._optimizers)
        frozen = [parameter for parameter in parameters if not parameter.value.requires_grad]
        # An optimizer may take its first step later.
        held = self._trained | MADE.parameters() if told else set()
        left_out = [
            parameter
            for parameter in parameters
            if told and parameter.value.requires_grad and id(parameter.value) not in held
        ]
        # Python returns the same weak reference for the same optimizer.
        optimizers = {id(reference): described for reference, described in self._optimizers}
        if self._made > 1:
            optimizers[id(self._optimizers[-1][0])] |= {"made": self._made}
        return TrainingSetup(
            dict(self._losses),
            optimizers,
            [one.weight for one in frozen],
            [one.weight for one in left_out],
            dropout_rates(self._names.modules()),
            [name for name, paired in self._paired.items() if not paired],
            loaded=self._loaded,
            fresh=self._fresh(frozen + left_out),
            activations=dict(self._activations),
            order=list(self._order),
            linear=list(self._linear),
            breaches=dict(self._breaches),
        )

    def _fresh(self, untrained: list[NamedParameter]) -> list[str]:
        """Return the names of untrained weights that still have their random initial values."""
        ids = {id(one.value) for one in untrained}
        holders = [
            module
            for _, module in (self._names.modules() if ids else [])
            if any(id(parameter) in ids for parameter in module._parameters.values())
        ]
        fresh = fresh_weights(holders)
        return [one.weight for one in untrained if id(one.value) in fresh]


def described_loss(loss: nn.Module) -> dict[str, Any]:
    """Return the record's entry of a loss module, with its buffers as set (True) or not."""
    inner = unwrapped(loss)
    settings = {key: value for key, value in vars(inner).items() if _is_setting(key)}
    settings |= {key: value is not None for key, value in inner._buffers.items()}
    return typed(own_class(inner).__name__, settings, own_class(inner))


def _is_setting(key: str) -> bool:
    return not key.startswith("_") and key != "training"


def _described(optimizer: Optimizer) -> dict[str, Any]:
    updates = [one for group in optimizer.param_groups for one in group["params"]]
    sizes = [0 if is_lazy(update) else update.numel() for update in updates]
    return described_optimizer(type(optimizer).__name__, optimizer.defaults, sizes)
