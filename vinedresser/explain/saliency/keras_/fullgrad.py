"""FullGrad of Keras models on TensorFlow, exact for any operator.

The model is traced into a graph, which gets the gradient and the implicit bias of each operator.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.axes import Role
from vinedresser.explain.saliency.batches import explained_in_batches
from vinedresser.explain.saliency.keras_.traced import Shown, Traced
from vinedresser.explain.saliency.options import Method, Peer, Postprocess
from vinedresser.explain.saliency.result import TOLERANCES, Saliency
from vinedresser.explain.saliency.targets import Targets

_IDS = ("int64", "int32")


def fullgrad(
    model: Any,
    inputs: Any,
    targets: Targets,
    method: Method,
    postprocess: Postprocess,
    *,
    channels_last: bool,
) -> Saliency:
    """Decompose outputs of a model and draw the saliency map.

    Args:
        model: a built keras.Model that returns [batch, outputs], or [batch]; it is called with
            training=False.
        inputs: array or tensor, float32 or float64 [batch, ...], or token ids [batch, tokens].
        targets: index of the output to explain, of all examples or one each; None for the largest.
        method: what the map shows.
        postprocess: what is done to each term of the map.
        channels_last: images are [batch, H, W, C], not [batch, C, H, W].

    Raises:
        SaliencyError: the inputs, the model's output or the targets do not allow it.
    """
    if method in get_args(Peer):
        raise SaliencyError(f"method={method!r} is available for PyTorch models only")
    given = _checked(inputs)
    if not model.built:
        raise SaliencyError("the model has no weights yet: call it once, or give it an Input")
    pixels: dict[Role, int] = {}
    if given.dtype.name in _IDS:
        pixels = {"row": given.shape[1]}
    elif given.ndim == 4:
        row = 1 if channels_last else 2
        pixels = {"row": given.shape[row], "column": given.shape[row + 1]}
    shown = Shown(method, postprocess, channels_last, pixels)
    traced: dict[int, Traced] = {}

    def explain(part: slice, of_part: Targets) -> Saliency | None:
        some = given[part]
        if len(some) not in traced:
            traced[len(some)] = Traced(model, tf.TensorSpec(some.shape, some.dtype), shown)
        return traced[len(some)].explain(tf.constant(some), of_part)

    return explained_in_batches(explain, len(given), targets)


def _checked(inputs: Any) -> NDArray[Any]:
    """Return inputs as an array."""
    if not isinstance(inputs, np.ndarray | tf.Tensor):
        raise SaliencyError(f"inputs are {type(inputs).__name__}; they must be an array")
    given: NDArray[Any] = np.asarray(inputs)
    if given.dtype.name not in (*TOLERANCES, *_IDS):
        raise SaliencyError(
            f"inputs are {given.dtype}; they must be float32 or float64, or int64 token ids"
        )
    if given.ndim < 2 or given.size == 0:
        raise SaliencyError(
            f"inputs have the shape {list(given.shape)}; they must be [batch, ...] and not empty"
        )
    if given.dtype.name in _IDS and given.ndim != 2:
        raise SaliencyError(
            f"inputs are integers with the shape {list(given.shape)}; token ids must be "
            "[batch, tokens], and other inputs floating-point numbers"
        )
    finite = np.isfinite(given).reshape(len(given), -1).all(1)
    if not finite.all():
        raise SaliencyError(f"inputs[{int((~finite).argmax())}] contains NaN or infinity")
    return given
