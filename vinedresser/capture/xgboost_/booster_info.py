"""The loss metrics of objectives, and properties of a booster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from xgboost import Booster

__all__ = ["LOSSES", "BoosterInfo"]

# By objective, the metric that equals the minimized loss, which is the default metric of XGBoost.
# The default metrics of hinge and ranking objectives (error, ndcg, map) are not losses.
LOSSES = {
    "binary:logistic": "logloss",
    "binary:logitraw": "logloss",
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
