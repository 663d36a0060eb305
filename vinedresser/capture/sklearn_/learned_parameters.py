"""What an estimator has learned: arrays and numbers by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vinedresser.capture.sklearn_.sample import dense

__all__ = ["learned_figures", "learned_parameters"]

# By attribute, the name of the tensor.
_ARRAYS = {
    "coef_": "weights/coef",
    "intercept_": "biases/intercept",
    "dual_coef_": "weights/dual_coef",
    "feature_log_prob_": "weights/feature_log_prob",
    "class_log_prior_": "biases/class_log_prior",
    "theta_": "weights/theta",
    "var_": "weights/var",
    "components_": "weights/components",
    "mean_": "biases/mean",
    "scale_": "weights/scale",
    "cluster_centers_": "weights/cluster_centers",
    "means_": "weights/means",
    "feature_importances_": "feature_importance/impurity",
}
# Of a neural network, whose attributes are lists by layer.
_LAYERS = {"coefs_": "weights/layers", "intercepts_": "biases/layers"}
# By attribute, the name of the scalar.
_FIGURES = {
    "loss_": "losses/objective",
    "inertia_": "losses/inertia",
    "n_iter_": "metrics/n_iter",
    "lower_bound_": "metrics/lower_bound",
    "oob_score_": "metrics/oob_score",
    "best_score_": "metrics/best_score",
}


def learned_parameters(estimator: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays that a fitted estimator has learned, by their full names.

    Args:
        estimator: a fitted estimator; one that has none of the usual attributes gives nothing.
    """
    found: dict[str, NDArray[Any]] = {}
    for attribute, name in _ARRAYS.items():
        # Some are computed, and raise where they make no sense, such as those of a kernel machine.
        value = getattr(estimator, attribute, None)
        array = None if value is None else dense(value)
        if array is not None and array.dtype.kind in "biuf":
            found[name] = np.atleast_1d(array)
    for attribute, name in _LAYERS.items():
        for layer, value in enumerate(getattr(estimator, attribute, ())):
            found[f"{name}.{layer}"] = np.asarray(value)
    return found


def learned_figures(estimator: Any) -> dict[str, float]:
    """Return the numbers that a fitted estimator says of its fit, by their full names."""
    found: dict[str, float] = {}
    for attribute, name in _FIGURES.items():
        value = getattr(estimator, attribute, None)
        if value is not None and np.ndim(value) == 0 and np.isreal(value):
            found[name] = float(value)
    return found
