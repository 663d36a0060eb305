"""The healthy trainings by name, and the data that some of them lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.rules.healthy_zoo.digits import DIGITS
from tests.rules.healthy_zoo.generative import GENERATIVE
from tests.rules.healthy_zoo.noisy import NOISY
from tests.rules.healthy_zoo.sequences import SEQUENCES
from tests.rules.healthy_zoo.tabular import TABULAR
from tests.rules.healthy_zoo.transfer import TRANSFER
from tests.rules.healthy_zoo.trees import TREES
from tests.rules.healthy_zoo.with_keras import KERAS

__all__ = ["LACKS", "ZOO", "Training"]

# Trains into a run directory with a seed, and asserts that the model has learned.
Training = Callable[[Path, int], None]

ZOO: dict[str, Training] = {
    **DIGITS,
    **TABULAR,
    **SEQUENCES,
    **GENERATIVE,
    **NOISY,
    **TRANSFER,
    **TREES,
    **KERAS,
}

# Trainings without evaluations, or with metrics only.
_NO_EVALUATED_LOSS = (
    "radam",
    "lbfgs",
    "bfloat16",
    "no_framework",
    "word_vectors",
    "vae",
    "gan",
    "denoising",
    "triplets",
    "contrast",
    "policy_gradient",
    "survival",
    "q_learning",
    "distillation",
    "mlp_classifier",
)
_OF_NETWORKS = ("gradients", "activations", "outputs", "buffers", "optimizer_state")
_NO_GRADIENTS = ("no_framework", *TREES)
# The weights of scikit-learn's network are captured after the fit, in no train step.
_NO_WEIGHTS = (
    "no_framework",
    "xgboost_classes",
    "xgboost_regression",
    "gradient_boosting",
    "mlp_classifier",
)
# Their losses compare no outputs with labels.
_NO_LABELS = (
    "no_framework",
    "word_vectors",
    "vae",
    "triplets",
    "contrast",
    "policy_gradient",
    "survival",
    "q_learning",
)

# By training the collections and modes that rules may report as missing.
LACKS: dict[str, frozenset[str]] = {
    name: frozenset(
        (
            *(("eval",) if name in _NO_EVALUATED_LOSS else ()),
            *(_OF_NETWORKS if name in _NO_GRADIENTS else ()),
            *(("weights", "biases") if name in _NO_WEIGHTS else ()),
            *(("labels", "predictions", "model_inputs") if name in _NO_LABELS else ()),
        )
    )
    for name in ZOO
}
