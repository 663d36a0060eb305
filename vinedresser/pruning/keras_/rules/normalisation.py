"""Rules of normalisations and of layers with one parameter per channel."""

from __future__ import annotations

from typing import Any

import keras

from vinedresser.pruning.group import Indices, Role
from vinedresser.pruning.keras_.channels import Labelled, UnsupportedUse
from vinedresser.pruning.keras_.rules.call import Call, Rule

_layers = keras.layers


def _positive(axis: int, rank: int) -> int:
    """Return an axis, counted with the batch axis, as one without it."""
    return axis - 1 if axis > 0 else axis + rank


def _tie(call: Call, labels: Indices, axis: int, variables: dict[str, Any]) -> None:
    """Tie an axis of variables to channels.

    Args:
        labels: int64 [size of the axis].
        variables: variables by role; None for those that the layer does not have.
    """
    reason = f"{call} has parameters for what is not a channel"
    call.channels.unite(call.nameless(len(labels)), labels, reason)
    for role, variable in variables.items():
        if variable is not None:
            own = call.axis(variable, axis, _role(role))
            call.channels.unite(own, labels, reason)


def _role(name: str) -> Role:
    roles: dict[str, Role] = {"gamma": "scale", "beta": "shift"}
    return roles.get(name, "running" if name in ("mean", "variance") else "other")


def _batch_normalization(call: Call) -> list[Labelled]:
    layer = call.operation
    tensor = call.inputs[0]
    axis = _positive(layer.axis, tensor.rank)
    labels = call.channels.along(tensor, axis, f"{call} has one parameter for several channels")
    variables = {
        "gamma": layer.gamma if layer.scale else None,
        "beta": layer.beta if layer.center else None,
        "mean": layer.moving_mean,
        "variance": layer.moving_variance,
    }
    _tie(call, labels, 0, variables)
    return [tensor]


def _over_axes(call: Call) -> list[Labelled]:
    """Layer and RMS normalisation: statistics of an example over axes."""
    layer, tensor = call.operation, call.input
    if getattr(layer, "rms_scaling", False):
        raise UnsupportedUse(f"{call} scales by the variance")
    given = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    axes = [_positive(one, tensor.rank) for one in given]
    varying = call.channels.varying(tensor)
    if not tensor.has_channels or (varying and not set(varying) & set(axes)):
        # Each position, or each channel, has statistics of its own.
        for variable in layer.variables:
            for axis in range(len(variable.shape)):
                reason = f"{call} has parameters for what is not a channel"
                call.channels.lock(call.axis(variable, axis, "other"), reason)
        return [tensor]
    axis = next((one for one in reversed(varying) if one in axes), axes[-1])
    labels = call.channels.along(tensor, axis, f"{call} has one parameter for several channels")
    variables = {
        "gamma": getattr(layer, "gamma", None),
        "beta": getattr(layer, "beta", None),
    }
    if isinstance(layer, _layers.RMSNormalization):
        variables = {"gamma": layer.scale}
    _tie(call, labels, axes.index(axis), variables)
    return [tensor]


def _group_normalization(call: Call) -> list[Labelled]:
    layer, tensor = call.operation, call.input
    axis = _positive(layer.axis, tensor.rank)
    labels = call.channels.along(tensor, axis, f"{call} has one parameter for several channels")
    if layer.groups < len(labels):
        # The groups have to stay of one size.
        groups = labels.reshape(layer.groups, -1)
        call.channels.unite(groups, groups[:1], f"{call} normalises it with what is not a channel")
    _tie(call, labels, 0, {"gamma": layer.gamma, "beta": layer.beta})
    return [tensor]


def _prelu(call: Call) -> list[Labelled]:
    layer, tensor = call.operation, call.input
    own = [axis for axis, size in enumerate(layer.alpha.shape) if size > 1]
    varying = call.channels.varying(tensor)
    tied = [axis for axis in own if axis in varying]
    if tied:
        reason = f"{call} has one parameter for several channels"
        labels = call.channels.along(tensor, tied[-1], reason)
        _tie(call, labels, tied[-1], {"alpha": layer.alpha})
        own.remove(tied[-1])
    for axis in own:
        reason = f"{call} has parameters for what is not a channel"
        call.channels.lock(call.axis(layer.alpha, axis, "other"), reason)
    return [tensor]


RULES: dict[type, Rule] = {
    _layers.BatchNormalization: _batch_normalization,
    _layers.LayerNormalization: _over_axes,
    _layers.RMSNormalization: _over_axes,
    _layers.GroupNormalization: _group_normalization,
    _layers.PReLU: _prelu,
}
