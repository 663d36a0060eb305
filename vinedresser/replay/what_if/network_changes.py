"""Changes of what a network computes: its activations, its weights, its loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from vinedresser.frameworks.loss_functions import loss_form, measures_errors
from vinedresser.replay.what_if.change import Change, Facts
from vinedresser.replay.what_if.changeable import Changeable
from vinedresser.replay.what_if.functions_seen import Network
from vinedresser.replay.what_if.initialising import initialized, unusual_weights
from vinedresser.replay.what_if.losses import losses_for, standardized_for
from vinedresser.replay.what_if.replaced_functions import (
    Loss,
    replaced_activations,
    replaced_loss,
    without_cuts,
)

__all__ = ["likely_changes", "output_changes"]

# Below this share, nothing of the inputs arrives behind the hidden layers.
_VANISHED = 1e-3

_SATURATING = ("sigmoid", "tanh", "softsign", "hardtanh", "hardsigmoid")
_RECTIFYING = ("relu", "relu6")
_Function = Callable[[Tensor], Tensor]


def _leaky(value: Tensor) -> Tensor:
    return functional.leaky_relu(value, 0.2)


# Kinds of changes of initial values.
_INITIAL = {
    "equal": "equal initial weights",
    "large": "large initial weights",
    "small": "small initial weights",
    "biases": "initial biases",
}
# Ranges of activations.
_RANGES = {
    "relu": (0.0, math.inf),
    "softplus": (0.0, math.inf),
    "tanh": (-1.0, 1.0),
    "softsign": (-1.0, 1.0),
    "hardtanh": (-1.0, 1.0),
    "sigmoid": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
}
# Kinds of activations, the names of those that a kind has, and what replaces them.
_KINDS: list[tuple[str, tuple[str, ...], dict[str, _Function]]] = [
    ("saturating activation", _SATURATING, {"relu": functional.relu, "selu": functional.selu}),
    ("rectifier", _RECTIFYING, {"leaky_relu": _leaky, "selu": functional.selu}),
    ("exponential activation", ("exp",), {"relu": functional.relu, "selu": functional.selu}),
]


def likely_changes(training: Changeable, facts: Facts) -> Iterator[Change]:
    """Yield changes for which there is a reason in what was seen.

    Args:
        facts: what is known about it.
    """
    others = _untrained(training.model, training.optimizers)
    if others:
        yield Change(
            "parameters",
            f"{len(others)} other parameters trained, too: {others[0][0]}"
            + (", ..." if len(others) > 1 else ""),
            partial(_trained, [one for _, one in others], training.optimizers),
        )
    network = facts.network
    if network is None:
        return
    if network.cut:
        yield Change("detach", "no detach() in the model", partial(without_cuts, training.model))
    for kind, words, loss in losses_for(network):
        # Standardized targets are within the range of hardly any activation.
        if kind != "targets" or not _exceeds(network):
            within = partial(replaced_loss, loss)
            yield Change(kind, words, within, network=True, learns=kind == "loss")
    yield from _hidden(training.model, facts, network)


def _hidden(model: nn.Module, facts: Facts, network: Network) -> Iterator[Change]:
    """Yield changes of hidden layers behind which nothing of the inputs arrives."""
    vanished = network.signal < _VANISHED
    if facts.beginning:
        yield from _initial(model, network, vanished=vanished)
    for kind, kinds, others in _KINDS:
        places = {place: name for place, name in network.hidden if name in kinds}
        if not places or not (vanished or (facts.nonfinite and "exp" in kinds)):
            continue
        old = " and ".join(sorted(set(places.values())))
        for new, function in others.items():
            replaced = {place: (name, function) for place, name in places.items()}
            within = partial(replaced_activations, model, replaced)
            words = f"{new} instead of {old} in hidden layers"
            yield Change(kind, words, within, network=True, learns=True)


def _initial(model: nn.Module, network: Network, *, vanished: bool) -> Iterator[Change]:
    """Yield usual initial values of parameters, drawn twice: one draw may have bad luck.

    Small weights and biases far from 0 do harm only where nothing of the inputs arrives.
    """
    names = [name for _, name in network.hidden]
    weights = unusual_weights(model, max(set(names), key=names.count, default=""))
    weights = [weight for weight in weights if vanished or weight.why in ("equal", "large")]
    reasons = {weight.why for weight in weights}
    for why in ("equal", "large", "small", "biases"):
        if why in reasons:
            break
    else:
        return
    number, first = len(weights), weights[0].name
    of = first if number == 1 else f"{number} parameters, such as {first}"
    for seed in range(2):
        yield Change(
            _INITIAL[why],
            f"usual initial values of {of}" + (", drawn again" if seed else ""),
            partial(initialized, weights, seed),
            network=True,
            learns=True,
        )
        if why == "biases":
            # Nothing is drawn.
            return


def output_changes(training: Changeable, facts: Facts) -> Iterator[Change]:
    """Yield other activations of the outputs.

    Values that are not finite say nothing of them. Without its activation, a loss that is negative
    can be so without end, and one that takes probabilities says nothing of outputs that are none.

    Args:
        facts: what is known about it.
    """
    network = facts.network
    if network is None or facts.nonfinite or facts.negative or not network.width:
        return
    loss = network.targets.loss if network.targets else ""
    last = network.last
    places = {} if last is None else {last[0]: last[1]}

    def within(
        inside: _Function, outside: _Function | None = None
    ) -> Callable[[], AbstractContextManager[None]]:
        replaced = {place: (name, inside) for place, name in places.items()}
        return partial(replaced_activations, training.model, replaced, outside)

    kind, present = "output activation", "" if last is None else last[1]
    probabilities = "sigmoid" if network.width == 1 else "softmax"
    form = loss_form(loss)
    on_logits = form is not None and form.takes == "logits"
    if not (measures_errors(loss) or on_logits) and present != probabilities:
        function = functional.sigmoid if network.width == 1 else partial(functional.softmax, dim=-1)
        if last is None:
            words = f"{probabilities} of the outputs"
            yield Change(kind, words, within(_same, function), network=True)
        else:
            words = f"{probabilities} instead of {present} of the outputs"
            yield Change(kind, words, within(function), network=True)
    if present and on_logits:
        yield Change(kind, f"no {present} of the outputs", within(_same), network=True)
    if _exceeds(network) and network.targets is not None:
        lowest, highest = network.targets.lowest, network.targets.highest
        words = f"no {present} of the outputs; targets range from {lowest:.3g} to {highest:.3g}"
        scaled = standardized_for(network.targets)
        free = within(_same)
        yield Change(kind, words, partial(_scaled, free, scaled) if scaled else free, network=True)


def _exceeds(network: Network) -> bool:
    """Return whether targets exceed the range of the outputs' activation."""
    seen = network.targets
    if seen is None or network.last is None or not measures_errors(seen.loss):
        return False
    lowest, highest = _RANGES.get(network.last[1], (-math.inf, math.inf))
    return seen.lowest < lowest or seen.highest > highest


@contextmanager
def _scaled(free: Callable[[], AbstractContextManager[None]], loss: Loss) -> Iterator[None]:
    """Let outputs be free, on the scale of the targets: so they need not move there first."""
    with free(), replaced_loss(loss):
        yield


def _same(value: Tensor) -> Tensor:
    return value


def _untrained(model: nn.Module, optimizers: list[Optimizer]) -> list[tuple[str, nn.Parameter]]:
    """Return name and value of the parameters that are frozen or in no optimizer.

    [] if most are, which is usual where a trained model is adapted.
    """
    held = {
        id(one) for each in optimizers for group in each.param_groups for one in group["params"]
    }
    found = [
        (name, one)
        for name, one in model.named_parameters()
        if not one.requires_grad or id(one) not in held
    ]
    number = sum(one.numel() for _, one in found)
    return found if 2 * number <= sum(parameter.numel() for parameter in model.parameters()) else []


@contextmanager
def _trained(parameters: list[nn.Parameter], optimizers: list[Optimizer]) -> Iterator[None]:
    """Train parameters by the first optimizer, with the options of its first group."""
    optimizer = optimizers[0]
    held = {
        id(one) for each in optimizers for group in each.param_groups for one in group["params"]
    }
    group = optimizer.param_groups[0]
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    # In a group that has them already, they are only frozen.
    missing = [parameter for parameter in parameters if id(parameter) not in held]
    for one in frozen:
        one.requires_grad_(True)
    if missing:
        options = {key: value for key, value in group.items() if key != "params"}
        optimizer.add_param_group({**options, "params": missing})
    try:
        yield
    finally:
        if missing:
            optimizer.param_groups.pop()
            for one in missing:
                optimizer.state.pop(one, None)
        for one in frozen:
            one.requires_grad_(False)
            one.grad = None
