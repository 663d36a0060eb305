"""The probabilities that attention layers compute, where they do not say them themselves."""

from __future__ import annotations

import inspect
from typing import Any

from keras import ops

__all__ = ["attention_scores"]


def attention_scores(layer: Any, result: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Return the attention of each head, [batch, heads, queries, keys], before any dropout.

    A layer that uses a fused kernel never has it: there it is computed beside, from what the layer
    was given, by the layer's own formula: softmax(scale Q K^T) under its mask (Vaswani et al. 2017,
    equation 1).

    Args:
        layer: a MultiHeadAttention or GroupQueryAttention.
        result: what its ``_compute_attention`` returned: output and scores, or None for these.
        args: what it was called with.
        kwargs: what it was called with by name.
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
