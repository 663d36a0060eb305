"""Terms of operators in a TensorFlow graph: gradient times implicit bias, reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from vinedresser.explain.saliency.axes import Axes, Role, arrangement

__all__ = ["Term", "term"]

# Added to the largest value, which may be zero; as in the implementation of the paper's authors.
_EPSILON = 1e-6


class Term(NamedTuple):
    """A term by example.

    Attributes:
        sums: sum over everything, [batch].
        picture: processed sum over everything but pixels, [batch, pixels...]; None if there are
            no pixels.
    """

    sums: Any
    picture: Any | None


def term(
    values: Any, axes: Axes, batch: int, pixels: Sequence[Role], postprocess: str
) -> Term | None:
    """Return a term; None if its examples cannot be told apart.

    Args:
        values: gradient times implicit bias, of known shape.
        axes: where examples and pixels lie in it.
        pixels: roles of the dimensions of the map; none for no map.
        postprocess: what is done before channels are summed.
    """
    shape, places = arrangement(values.shape.as_list(), axes, batch)
    if "example" not in places:
        return None
    arranged = tf.reshape(values, shape)
    roles: list[Role] = ["example", *pixels]
    kept = [places[role] for role in roles if role in places]
    order = [*kept, *(dim for dim in range(len(shape)) if dim not in kept)]
    arranged = tf.transpose(arranged, order)
    others = list(range(1, len(shape)))
    sums = tf.reduce_sum(arranged, others)
    if len(kept) < len(roles) or not pixels:
        return Term(sums, None)
    shown = arranged if postprocess == "none" else tf.abs(arranged)
    picture = tf.reduce_sum(shown, others[len(pixels) :])
    if postprocess == "rescale":
        ends = [-1, *[1] * len(pixels)]
        least = tf.reshape(tf.reduce_min(shown, others), ends)
        most = tf.reshape(tf.reduce_max(shown, others), ends)
        layers = 1
        for dim in order[len(kept) :]:
            layers *= shape[dim]
        picture = (picture - layers * least) / (most - least + _EPSILON)
    return Term(sums, picture)
