"""Saliency maps of models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.options import Method, Postprocess, check_option
from vinedresser.explain.saliency.result import Saliency

__all__ = ["channels_are_last", "saliency"]


def saliency(
    model: Any,
    inputs: Any,
    targets: int | Sequence[int] | None = None,
    *,
    method: Method = "fullgrad",
    postprocess: Postprocess = "rescale",
) -> Saliency:
    """Decompose outputs of a model into input and bias terms, and draw a saliency map.

    Args:
        model: a torch.nn.Module, or a keras.Model with the backend tensorflow or torch, that
            returns [batch, outputs], or [batch]. It is used in evaluation mode and is afterwards
            as it was.
        inputs: float32 or float64, [batch, ...], or token ids, int64 [batch, tokens]. A map is
            drawn for images [batch, C, H, W], or in the image data format of Keras, and for
            tokens. They are tensors of PyTorch, or arrays for TensorFlow.
        targets: index of the output to explain, one for all examples or one each; None for the
            largest.
        method: "fullgrad": input times gradient and the bias terms; "simple_fullgrad": the same
            operators, with gradients instead of bias terms; "input_x_gradient"; "gradient"; by
            Captum "smoothgrad", "integrated_gradients" and "grad_cam".
        postprocess: what is done to each term before its channels are summed. "rescale": absolute
            values, scaled to [0, 1] for each example, as in the paper; "abs": absolute values;
            "none": nothing, so that the map has signs.

    Raises:
        SaliencyError: an argument is not valid, or the model's output cannot be explained.
        MissingDependency: the method needs Captum, which is not installed.
    """
    check_option("method", method, Method)
    check_option("postprocess", postprocess, Postprocess)
    keras = sys.modules.get("keras")
    last = channels_are_last(model)
    is_keras = keras is not None and isinstance(model, keras.Model)
    if keras is not None and is_keras and keras.backend.backend() == "tensorflow":
        from vinedresser.explain.saliency.keras_.fullgrad import fullgrad as of_keras

        return of_keras(model, inputs, targets, method, postprocess, channels_last=last)
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise SaliencyError(
            f"{type(model).__name__} cannot be explained: it must be a torch.nn.Module, or a "
            "keras.Model with the backend tensorflow or torch"
        )
    from vinedresser.explain.saliency.torch_.fullgrad import fullgrad

    return fullgrad(model, inputs, targets, method, postprocess, channels_last=last)


def channels_are_last(model: Any) -> bool:
    """Return whether a model takes images with the channels as the last axis."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, keras.Model):
        return False
    return bool(keras.config.image_data_format() == "channels_last")
