"""Attention probabilities of layers that do not return them."""

from __future__ import annotations

import inspect
from typing import Any

from keras import ops

__all__ = ["attention_scores"]


def attention_scores(layer: Any, result: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Return the attention of each head before dropout: [batch, heads, queries, keys], float.

    A layer with a fused kernel never computes it. It is then computed from the arguments with the
    layer's own formula: softmax(scale Q K^T) under its mask (Vaswani et al. 2017, equation 1).

    Args:
        layer: a MultiHeadAttention or GroupQueryAttention.
        result: result of its ``_compute_attention``: output and scores; the scores may be None.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
    """
    if isinstance(result, tuple) and len(result) > 1 and result[1] is not None:
        return result[1]
    signature = inspect.signature(type(layer)._compute_attention)
    given = signature.bind(layer, *args, **kwargs).arguments
    query, key, mask = given["query"], given["key"], given.get("attention_mask")
    if given.get("use_causal_mask"):
        causal = layer._compute_causal_mask(query, given["value"])
        mask = causal if mask is None else ops.logical_and(ops.cast(mask, "bool"), causal)
    scale = getattr(layer, "_inverse_sqrt_key_dim", None)
    scale = layer._inverse_sqrt_head_dim if scale is None else scale
    query = ops.multiply(query, ops.cast(scale, query.dtype))
    scores = ops.einsum(layer._dot_product_equation, key, query)
    return layer._masked_softmax(scores, mask)
