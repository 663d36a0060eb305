"""Setup of a Keras training for the run's record."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import keras
from keras.src.losses.losses import LossFunctionWrapper

from vinedresser.capture.adapters.training_setup import (
    TrainingSetup,
    described_function,
    described_optimizer,
    function_setup,
    plain_settings,
    typed,
)
from vinedresser.capture.keras_.observation.comparisons import LossFunction
from vinedresser.capture.keras_.observation.loop_losses import LossSource
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.frameworks.keras_.layers import dropout_rates
from vinedresser.frameworks.keras_.model_state import inner_optimizer

# Functions of TensorFlow that compute what those of Keras do with ``from_logits=True``.
_OF_LOGITS = {
    "binary_crossentropy": "sigmoid_cross_entropy_with_logits",
    "categorical_crossentropy": "softmax_cross_entropy_with_logits",
    "sparse_categorical_crossentropy": "sparse_softmax_cross_entropy_with_logits",
}


def training_setup(watched: WatchedModel, loss: Any) -> TrainingSetup:
    """Return the losses, optimizers, frozen variables and dropout rates known so far.

    Args:
        loss: the loss object of a custom loop; None if there is none.
    """
    prefix, variables = watched.names.prefix, watched.names.variables()
    losses = {f"{prefix}{name}": one for name, one in _compiled_losses(watched.model)}
    if watched.source is not None:
        losses[f"{prefix}loss"] = _described_source(watched.source)
    if loss is not None:
        losses[f"{prefix}{loss.name}"] = _described_loss(loss)
    optimizers = [
        optimizer for optimizer in watched.optimizers() if inner_optimizer(optimizer).built
    ]
    trained = {
        id(variable)
        for each in optimizers
        for variable in inner_optimizer(each)._trainable_variables
    }
    parameters = [variable for variable in variables if variable.kind != "buffers"]
    return TrainingSetup(
        losses,
        {id(optimizer): _described_optimizer(optimizer) for optimizer in optimizers},
        [parameter.name for parameter in parameters if not parameter.value.trainable],
        [
            parameter.name
            for parameter in parameters
            if optimizers and parameter.value.trainable and id(parameter.value) not in trained
        ],
        dropout_rates(watched.names.layers()),
    )


def _compiled_losses(model: Any) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the losses given to compile(), by name; none before their first call."""
    flat = getattr(getattr(model, "_compile_loss", None), "_flat_losses", None) or []
    for one in flat:
        yield f"{one.name}_loss" if len(flat) > 1 else "loss", _described_loss(one.loss)


def _described_loss(loss: keras.losses.Loss | LossFunction) -> dict[str, Any]:
    if isinstance(loss, LossFunction):
        return typed(loss.name, dict(loss.settings))
    if type(loss) is LossFunctionWrapper:
        # Made by Keras from a function or its name.
        described = described_function(loss.fn, loss._fn_kwargs)
        described["settings"]["reduction"] = loss.reduction
        return described
    settings = {key: one for key, one in vars(loss).items() if not key.startswith("_")}
    return typed(type(loss).__name__, settings | getattr(loss, "_fn_kwargs", {}), type(loss))


def _described_source(source: LossSource) -> dict[str, Any]:
    described = _described_loss(source.loss)
    if source.negated or source.reduction is None:
        # The values are not those of the loss function.
        return function_setup(_named(source.loss, described["type"]), negated=source.negated)
    if source.reduction:
        described["settings"]["reduction"] = source.reduction
    return described


def _named(loss: keras.losses.Loss | LossFunction, kind: str) -> str:
    """Return the name of a function that says whether it takes logits."""
    takes_logits = isinstance(loss, LossFunction) and dict(loss.settings).get("from_logits")
    return _OF_LOGITS.get(kind, kind) if takes_logits else kind


def _described_optimizer(optimizer: Any) -> dict[str, Any]:
    inner = inner_optimizer(optimizer)
    settings = plain_settings({} if inner is optimizer else optimizer.get_config())
    settings |= plain_settings(inner.get_config())
    rate = inner.get_config()["learning_rate"]
    if isinstance(rate, dict):
        settings["schedule"] = rate["class_name"]
        rate = rate["config"].get("initial_learning_rate", inner.learning_rate)
    # Keras stores the rate as float32.
    settings["lr"] = float(f"{float(rate):.7g}")
    settings.pop("learning_rate", None)
    sizes = [prod(variable.shape) for variable in inner._trainable_variables]
    return described_optimizer(type(inner).__name__, settings, sizes)
