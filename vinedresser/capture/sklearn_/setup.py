"""Setup of a scikit-learn training for the run's record."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.adapters.training_setup import TrainingSetup, described_optimizer, typed
from vinedresser.capture.sklearn_.inner_estimator import inner_estimator

__all__ = ["training_setup"]

# Parameters with the learning rate, in order of precedence.
_RATES = ("learning_rate_init", "eta0", "learning_rate")


def training_setup(estimator: Any) -> TrainingSetup:
    """Return the training setup of an estimator, or of the one inside a pipeline or search.

    The loss is the parameter ``loss`` or, for trees, ``criterion``; the optimizer is the estimator
    with its parameters, and ``lr`` if it has a numeric learning rate.
    """
    inner = inner_estimator(estimator).estimator
    settings = dict(inner.get_params(deep=False)) if hasattr(inner, "get_params") else {}
    rates = (settings.get(key) for key in _RATES)
    rate = next((one for one in rates if isinstance(one, (int, float))), None)
    if rate is not None:
        settings["lr"] = rate
    # A neural network has its loss as an attribute after the fit.
    loss = settings.get("loss", settings.get("criterion", getattr(inner, "loss", None)))
    losses = {"objective": typed(loss, {})} if isinstance(loss, str) else {}
    return TrainingSetup(losses, {0: described_optimizer(type(inner).__name__, settings, ())})
