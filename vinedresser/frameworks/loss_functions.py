"""The loss functions of the frameworks: what each computes, and from which kind of predictions."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["LossForm", "is_other_loss", "loss_form", "measures_errors"]


class LossForm(NamedTuple):
    """What a loss function computes of each row.

    Attributes:
        loss: "cross_entropy", "binary_cross_entropy", "mean_squared_error", "mean_absolute_error"
            or "huber".
        takes: kind of predictions: "logits", "probabilities", "logarithms" (of probabilities), or
            "" for numbers.
    """

    loss: str
    takes: str


_ERRORS = ("mean_squared_error", "mean_absolute_error", "huber")
# Names of classes and functions of torch, Keras and TensorFlow, in lower case, without underscores
# and "loss".
_FORMS = {
    "crossentropy": LossForm("cross_entropy", "logits"),
    "nll": LossForm("cross_entropy", "logarithms"),
    "categoricalcrossentropy": LossForm("cross_entropy", "probabilities"),
    "sparsecategoricalcrossentropy": LossForm("cross_entropy", "probabilities"),
    "softmaxcrossentropywithlogits": LossForm("cross_entropy", "logits"),
    "sparsesoftmaxcrossentropywithlogits": LossForm("cross_entropy", "logits"),
    "sigmoidcrossentropywithlogits": LossForm("binary_cross_entropy", "logits"),
    "bce": LossForm("binary_cross_entropy", "probabilities"),
    "binarycrossentropy": LossForm("binary_cross_entropy", "probabilities"),
    "bcewithlogits": LossForm("binary_cross_entropy", "logits"),
    "binarycrossentropywithlogits": LossForm("binary_cross_entropy", "logits"),
    "multilabelsoftmargin": LossForm("binary_cross_entropy", "logits"),
    "mse": LossForm("mean_squared_error", ""),
    "meansquarederror": LossForm("mean_squared_error", ""),
    "l1": LossForm("mean_absolute_error", ""),
    "mae": LossForm("mean_absolute_error", ""),
    "meanabsoluteerror": LossForm("mean_absolute_error", ""),
    "huber": LossForm("huber", ""),
    "smoothl1": LossForm("huber", ""),
}
# Losses of torch and Keras with other formulas, which sampled rows may resemble by chance.
_OTHERS = frozenset(
    (
        "cosineembedding",
        "cosinesimilarity",
        "ctc",
        "gaussiannll",
        "hinge",
        "hingeembedding",
        "categoricalhinge",
        "squaredhinge",
        "kldiv",
        "kldivergence",
        "logcosh",
        "marginranking",
        "meanabsolutepercentageerror",
        "meansquaredlogarithmicerror",
        "multilabelmargin",
        "multimargin",
        "poisson",
        "poissonnll",
        "softmargin",
        "tripletmargin",
        "tripletmarginwithdistance",
    )
)


def loss_form(name: str) -> LossForm | None:
    """Return what a loss function computes; None if its name does not tell.

    Args:
        name: name of a class or function, such as "CrossEntropyLoss" or "mse_loss", perhaps with
            the number of a call or a position in a nesting.
    """
    return _FORMS.get(_word(name))


def is_other_loss(name: str) -> bool:
    """Return whether a name is that of a loss function that computes none of these forms."""
    return _word(name) in _OTHERS


def measures_errors(name: str) -> bool:
    """Return whether a loss function measures errors of numbers, such as "mse_loss"."""
    form = loss_form(name)
    return form is not None and form.loss in _ERRORS


def _word(name: str) -> str:
    word = re.sub(r"[#\[].*", "", name).replace("_", "").lower()
    return word.removesuffix("loss")
