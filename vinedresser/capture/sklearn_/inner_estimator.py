"""The estimator inside a pipeline or a search, and the setup of its training."""

from __future__ import annotations

from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline

from vinedresser.capture.adapters.training_setup import TrainingSetup, described_optimizer, typed

__all__ = ["InnerEstimator", "inner_estimator", "training_setup"]

# Parameters with the learning rate, in order of precedence.
_RATES = ("learning_rate_init", "eta0", "learning_rate")


class InnerEstimator(NamedTuple):
    """The last estimator of nested pipelines and searches.

    Attributes:
        before: pipelines with the preceding transformers, outermost first.
    """

    estimator: Any
    before: tuple[Pipeline, ...]

    def transformed(self, x: Any) -> Any:
        """Return rows as they are passed to the estimator."""
        for pipeline in self.before:
            x = pipeline.transform(x)
        return x


def inner_estimator(estimator: Any) -> InnerEstimator:
    """Return the learning estimator inside a fitted pipeline or search."""
    before: list[Pipeline] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline):
            if len(estimator) > 1:
                before.append(estimator[:-1])
            estimator = estimator[-1]
        else:
            return InnerEstimator(estimator, tuple(before))


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
