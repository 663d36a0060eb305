"""How a training with scikit-learn is set up, for the run's record."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.adapters.training_setup import TrainingSetup, described_optimizer, typed
from vinedresser.capture.sklearn_.inner_estimator import unwrapped

__all__ = ["training_setup"]

# The parameter that is the length of a step, in the order in which it is looked for.
_RATES = ("learning_rate_init", "eta0", "learning_rate")


def training_setup(estimator: Any) -> TrainingSetup:
    """Return how an estimator is trained; of a pipeline or search, the one inside.

    The loss is what it calls its loss (or, of trees, its criterion); the optimizer is the estimator
    itself with its parameters, and ``lr`` where it has a learning rate that is a number.
    """
    inner = unwrapped(estimator).estimator
    settings = dict(inner.get_params(deep=False)) if hasattr(inner, "get_params") else {}
    rates = (settings.get(key) for key in _RATES)
    rate = next((one for one in rates if isinstance(one, (int, float))), None)
    if rate is not None:
        settings["lr"] = rate
    # A network says after its fit which loss it has.
    loss = settings.get("loss", settings.get("criterion", getattr(inner, "loss", None)))
    losses = {"objective": typed(loss, {})} if isinstance(loss, str) else {}
    return TrainingSetup(losses, {0: described_optimizer(type(inner).__name__, settings, ())})
