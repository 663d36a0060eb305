"""Attention probabilities, from what torch's attention functions are called with.

Shape legend: N batch, H heads, G heads of the keys (H but with grouped queries), L queries, S keys,
E features, D = E / H features of a head.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["ATTENTION", "attention_probabilities"]


def attention_probabilities(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Tensor:
    """Return softmax(q kᵀ / sqrt(D) + mask), before dropout; float32, [N, H, L, S].

    Args:
        function: one of `ATTENTION`.
        args: what it is called with by position.
        kwargs: and by keyword.

    Raises:
        TypeError: the mask or the tensors are of a kind of which this is not known.
    """
    names, compute = _KNOWN[function]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    _check(given)
    device = given["query"].device.type
    with torch.no_grad():
        if not torch.is_autocast_enabled(device):
            return compute(given)
        # It would compute in half precision, and keep what it has cast of the weights for the rest
        # of the forward, without their graph.
        with torch.autocast(device, enabled=False):
            return compute(given)


def _scaled_dot_product(given: Mapping[str, Any]) -> Tensor:
    """Compute it for `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        given: its arguments. ``query`` is [..., H, L, D]; without H, one head; without more, a
            batch of one. ``key`` is [..., G, S, D]. ``attn_mask`` is broadcast to [..., H, L, S]:
            what is True takes part, numbers are added to the scores. ``is_causal``: the first query
            sees the first key only, and so on. ``enable_gqa``: each head of the keys serves H / G.
    """
    query, key = _wide(given["query"]), _wide(given["key"])
    if given.get("enable_gqa"):
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scale = given.get("scale")
    scores = query @ key.transpose(-2, -1)
    scores *= 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if given.get("is_causal"):
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        scores.masked_fill_(ahead, -math.inf)
    mask = given.get("attn_mask")
    if mask is not None:
        scores = scores + _added(~mask if mask.dtype == torch.bool else mask)
    return _in_four(_softmax(scores, unseen=0.0))


def _multi_head(given: Mapping[str, Any]) -> Tensor:
    """Compute it for `torch.nn.functional.multi_head_attention_forward`.

    Args:
        given: its arguments, as `torch.nn.MultiheadAttention` gives them. ``query`` is [L, N, E] or
            [L, E], ``key`` so with S. ``bias_k`` [1, 1, E] and ``add_zero_attn`` are two further
            keys, in this order. ``attn_mask``, [L, S] or [N H, L, S], and ``key_padding_mask``,
            [N, S] or [S]: what is True takes no part, numbers are added to the scores; of a causal
            hint they say all. ``need_weights``: what a query has that sees no key is NaN, else 0.
    """
    queries, keys = _projected(given)
    batch, heads = queries.shape[1], given["num_heads"]
    if given["bias_k"] is not None:
        keys = torch.cat([keys, _wide(given["bias_k"]).expand(1, batch, -1)])
    # To [N, H, L, D] and [N, H, S, D].
    queries, keys = (one.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3) for one in (queries, keys))
    if given["add_zero_attn"]:
        keys = functional.pad(keys, (0, 0, 0, 1))
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    further = keys.shape[2] - given["key"].shape[0]
    if mask is not None:
        added = _added(mask, further)
        scores = scores + (added.unflatten(0, (batch, heads)) if added.dim() == 3 else added)
    if padding is not None:
        scores = scores + _added(padding, further).view(batch, 1, 1, -1)
    return _softmax(scores, unseen=math.nan if given.get("need_weights", True) else 0.0)


_Compute = Callable[[Mapping[str, Any]], Tensor]

# By function: the names of its arguments, and what computes the probabilities.
_KNOWN: dict[Callable[..., Any], tuple[tuple[str, ...], _Compute]] = {
    functional.scaled_dot_product_attention: (
        ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
        _scaled_dot_product,
    ),
    functional.multi_head_attention_forward: (
        tuple(inspect.signature(functional.multi_head_attention_forward).parameters),
        _multi_head,
    ),
}
ATTENTION = frozenset(_KNOWN)


def _check(given: Mapping[str, Any]) -> None:
    """Raise `TypeError` where the elements may mean something else than they seem to."""
    if given["query"].is_nested or given["key"].is_nested:
        raise TypeError("attention between nested tensors is not captured")
    mask = given.get("attn_mask")
    if mask is not None and type(mask) not in (Tensor, torch.nn.Parameter):
        raise TypeError(f"attention under a mask that is a {type(mask).__name__} is not captured")
    if given.get("static_k") is not None:
        raise TypeError("attention to static keys is not captured")


def _wide(value: Tensor) -> Tensor:
    """Return a tensor in float32, or float64 if it is that already."""
    return value.detach().to(torch.promote_types(value.dtype, torch.float32))


def _projected(given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return queries [L, N, E] and keys [S, N, E] as an attention's own weights make them."""
    query, key = _wide(given["query"]), _wide(given["key"])
    if query.dim() == 2:
        query, key = query.unsqueeze(1), key.unsqueeze(1)
    if given.get("use_separate_proj_weight"):
        weights = given["q_proj_weight"], given["k_proj_weight"]
    else:
        weights = given["in_proj_weight"].chunk(3)[:2]
    packed = given["in_proj_bias"]
    biases = (None, None) if packed is None else _wide(packed).chunk(3)[:2]
    return (
        functional.linear(query, _wide(weights[0]), biases[0]),
        functional.linear(key, _wide(weights[1]), biases[1]),
    )


def _added(mask: Tensor, further: int = 0) -> Tensor:
    """Return a mask as what is added to scores: -inf where it is True.

    Args:
        mask: [..., S]; what it is True of takes no part.
        further: keys after these, which take part.
    """
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill_(mask, -math.inf)
    return functional.pad(_wide(mask), (0, further)) if further else _wide(mask)


def _softmax(scores: Tensor, unseen: float) -> Tensor:
    """Return the softmax over the keys in float32; of a query that sees no key, what is given."""
    found = torch.softmax(scores, -1)
    nothing = (scores == -math.inf).all(-1, keepdim=True)
    return found.masked_fill_(nothing, unseen).to(torch.float32)


def _in_four(value: Tensor) -> Tensor:
    """Return [..., H, L, S] as [N, H, L, S]."""
    if value.dim() == 3:
        return value.unsqueeze(1)
    if value.dim() < 3:
        return value.reshape(1, 1, *value.shape[-2:])
    return value.flatten(0, -4)
