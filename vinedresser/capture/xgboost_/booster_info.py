"""What a booster says about itself: properties, loss, setup, coefficients."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster

from vinedresser.capture.adapters.training_setup import TrainingSetup, described_optimizer, typed

__all__ = ["BoosterInfo", "LOSSES", "coefficients", "training_setup"]

# By objective, the metric that equals the minimized loss, which is the default metric of XGBoost.
# The default metrics of hinge and ranking objectives (error, ndcg, map) are not losses, nor is that
# of binary:logitraw, which takes margins for probabilities.
LOSSES = {
    "binary:logistic": "logloss",
    "count:poisson": "poisson-nloglik",
    "multi:softmax": "mlogloss",
    "multi:softprob": "mlogloss",
    "reg:absoluteerror": "mae",
    "reg:gamma": "gamma-deviance",
    "reg:logistic": "rmse",
    "reg:pseudohubererror": "mphe",
    "reg:quantileerror": "quantile",
    "reg:squarederror": "rmse",
    "reg:squaredlogerror": "rmsle",
    "reg:tweedie": "tweedie-nloglik",
    "survival:aft": "aft-nloglik",
    "survival:cox": "cox-nloglik",
}
# Objective of a booster that was given none, such as one with a custom objective.
_DEFAULT_OBJECTIVE = "reg:squarederror"
# Metrics of XGBoost that are named so, too.
_METRICS = frozenset((*LOSSES.values(), "gamma-nloglik"))
# Names of custom metrics that a custom objective minimizes.
_NAMED_LOSS = re.compile(r"(?i)loss|deviance|nll|nloglik")
# Suffix of the tables that contain parameters.
_TABLE_SUFFIX = "_param"


@dataclass(frozen=True)
class BoosterInfo:
    """Properties of a booster.

    Attributes:
        booster: "gbtree", "dart" or "gblinear".
        objective: name of the objective; for a custom objective, the one that it replaces.
        vector_leaf: whether one tree predicts all outputs.
        grows: whether rounds grow trees; otherwise they update those of an earlier model
            (``process_type`` "update"), and the booster cannot be sliced.
    """

    booster: str
    objective: str
    vector_leaf: bool
    grows: bool

    @classmethod
    def of(cls, booster: Booster) -> Self:
        """Read the properties of a booster that has completed a round."""
        learner = json.loads(booster.save_config())["learner"]
        strategy = learner["learner_train_param"].get("multi_strategy")
        gradient_booster = learner["gradient_booster"]
        # DART nests the trees one level deeper; a linear booster has none.
        trees = gradient_booster.get("gbtree", gradient_booster).get("gbtree_train_param", {})
        return cls(
            gradient_booster["name"],
            learner["objective"]["name"],
            strategy == "multi_output_tree",
            # process_type itself is lost when a model is loaded.
            "grow" in trees.get("updater_seq", ""),
        )

    @property
    def additive(self) -> bool:
        """Whether a round adds trees without changing earlier ones."""
        return self.booster == "gbtree" and self.grows

    @property
    def loss(self) -> str | None:
        """The metric that is the objective's loss; None if XGBoost has none."""
        return LOSSES.get(self.objective)

    def loss_among(self, metrics: Collection[str]) -> str | None:
        """Return the metric that is the loss; that of the objective unless one stands in for it.

        With a custom objective, a custom metric does: XGBoost then names its default objective, but
        its default metric may be disabled.

        Args:
            metrics: names of the metrics of a data set.
        """
        if self.objective != _DEFAULT_OBJECTIVE or len(metrics) != 1:
            return self.loss
        (metric,) = metrics
        custom = metric.partition("@")[0] not in _METRICS and _NAMED_LOSS.search(metric)
        return metric if custom else self.loss


def training_setup(booster: Booster) -> TrainingSetup:
    """Return the training setup of a booster that has completed a round.

    The loss is the objective; for a custom objective, the one that it replaces. The optimizer is
    the kind of booster with all of its effective parameters and ``lr``, the learning rate.
    """
    learner = json.loads(booster.save_config())["learner"]
    objective = learner["objective"]
    settings = dict(_parameters(learner["gradient_booster"]))
    if "learning_rate" in settings:
        settings["lr"] = settings["learning_rate"]
    loss = typed(objective["name"], dict(_parameters(objective)))
    kind = learner["gradient_booster"]["name"]
    return TrainingSetup({"objective": loss}, {0: described_optimizer(kind, settings, ())})


def _parameters(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parameters in a booster's configuration, including nested tables."""
    for key, value in table.items():
        if not isinstance(value, dict):
            continue
        if key.endswith(_TABLE_SUFFIX):
            yield from ((name, _value(text)) for name, text in value.items())
        else:
            yield from _parameters(value)


def _value(text: Any) -> Any:
    """Parse a parameter as a number if possible."""
    try:
        # XGBoost stores parameters as float32.
        number = float(f"{float(text):.7g}")
    except (TypeError, ValueError):
        return text
    return int(number) if number.is_integer() and "." not in text else number


def coefficients(booster: Booster) -> dict[str, NDArray[np.float32]]:
    """Return "weights" [F] and "biases" [1], float32; [F, K] and [K] for K outputs."""
    model = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]
    features = booster.num_features()
    values = np.array(model["weights"], np.float32).reshape(features + 1, -1)
    weights = values[:-1, 0] if values.shape[1] == 1 else values[:-1]
    return {"weights": weights, "biases": values[-1]}
