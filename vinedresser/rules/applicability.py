"""In which frameworks rules have nothing to look at, and why."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "AFTER_THE_FIRST_STEP",
    "FRAMEWORKS",
    "NETWORKS_ONLY",
    "NO_NETWORK",
    "NO_TERMS",
    "NO_UPDATES",
    "RANKS_OF_TORCH",
    "Reasons",
    "TREES_ONLY",
]

# In the order of `Reasons` and of the table in docs/rules.md.
FRAMEWORKS = ("torch", "Keras", "XGBoost", "scikit-learn")

NO_NETWORK = "there are no layers, activations or gradients to look at"
NO_TERMS = "the library's losses have a minimum"
NO_UPDATES = "how far a step moves the weights is not captured"
_ONE_PROCESS = "weights of several ranks are not captured"
AFTER_THE_FIRST_STEP = "the first loss and weights that can be seen are those after the first step"


class Reasons(NamedTuple):
    """By framework the reason why a rule has nothing to look at; "" where it applies."""

    torch: str = ""
    keras: str = ""
    xgboost: str = ""
    sklearn: str = ""


NETWORKS_ONLY = Reasons(xgboost=NO_NETWORK, sklearn=NO_NETWORK)
RANKS_OF_TORCH = Reasons(keras=_ONE_PROCESS, xgboost=_ONE_PROCESS, sklearn=_ONE_PROCESS)
TREES_ONLY = Reasons(torch="there are no trees", keras="there are no trees")
