"""Which metric is an objective's loss, and what a booster says of itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from xgboost import Booster

__all__ = ["LOSSES", "BoosterInfo"]

# By objective, the metric that measures what the training minimizes: the one that XGBoost evaluates
# by default. Not of hinge and ranking, where that is error, ndcg or map, which are no losses.
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
    """What is needed to know of a booster.

    Attributes:
        booster: "gbtree", "dart" or "gblinear".
        objective: its name; of a custom objective, the one in whose place it stands.
        vector_leaf: one tree gives all outputs.
        grows: rounds grow trees; else they go over those of an earlier model (``process_type``
            "update"), out of which no round can be cut meanwhile.
    """

    booster: str
    objective: str
    vector_leaf: bool
    grows: bool

    @classmethod
    def of(cls, booster: Booster) -> Self:
        """Ask a booster that has done a round."""
        learner = json.loads(booster.save_config())["learner"]
        strategy = learner["learner_train_param"].get("multi_strategy")
        gradient_booster = learner["gradient_booster"]
        # DART wraps the trees once more, and a linear booster has none.
        trees = gradient_booster.get("gbtree", gradient_booster).get("gbtree_train_param", {})
        return cls(
            gradient_booster["name"],
            learner["objective"]["name"],
            strategy == "multi_output_tree",
            # What process_type says is lost when a model is loaded.
            "grow" in trees.get("updater_seq", ""),
        )

    @property
    def additive(self) -> bool:
        """Whether a round adds trees and leaves those before as they are."""
        return self.booster == "gbtree" and self.grows

    @property
    def loss(self) -> str | None:
        """The metric that is the objective's loss; None where XGBoost has none."""
        return LOSSES.get(self.objective)
