"""Attention probabilities, from the arguments of torch's attention functions.

Shapes: N batch, H heads, G key heads (H unless queries are grouped), L queries, S keys, E features,
D = E / H features per head.
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
    """Return softmax(q kᵀ / sqrt(D) + mask) before dropout; float32 [N, H, L, S].

    The formula is that of Vaswani et al., "Attention Is All You Need", 2017.

    Args:
        function: one of `ATTENTION`.

    Raises:
        TypeError: the tensors or the mask are of an unsupported type.
    """
    names, compute = _KNOWN[function]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    _check(given)
    device = given["query"].device.type
    with torch.no_grad():
        if not torch.is_autocast_enabled(device):
            return compute(given)
        # Autocast would compute in half precision, and cache the cast weights without their graph
        # for the rest of the forward.
        with torch.autocast(device, enabled=False):
            return compute(given)


def _scaled_dot_product(given: Mapping[str, Any]) -> Tensor:
    """Return the probabilities of `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        given: arguments by name. ``query`` [..., H, L, D] or [L, D], ``key`` [..., G, S, D];
            ``attn_mask``, broadcast to [..., H, L, S]: True takes part, numbers are added to the
            scores; ``is_causal``: query i sees keys 0 to i; ``enable_gqa``: each key head serves
            H / G query heads.
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
    """Return the probabilities of `torch.nn.functional.multi_head_attention_forward`.

    Args:
        given: arguments by name, as passed by `torch.nn.MultiheadAttention`. ``query`` [L, N, E] or
            [L, E], ``key`` [S, N, E] or [S, E]; ``bias_k`` [1, 1, E] and ``add_zero_attn`` append
            one key each; ``attn_mask`` [L, S] or [N H, L, S] and ``key_padding_mask`` [N, S] or
            [S]: True takes no part, numbers are added to the scores (they include a causal hint);
            ``need_weights``: the probabilities of a query without visible keys are NaN, else 0.
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
    appended = keys.shape[2] - given["key"].shape[0]
    if mask is not None:
        added = _added(mask, appended)
        scores = scores + (added.unflatten(0, (batch, heads)) if added.dim() == 3 else added)
    if padding is not None:
        scores = scores + _added(padding, appended).view(batch, 1, 1, -1)
    return _softmax(scores, unseen=math.nan if given.get("need_weights", True) else 0.0)


_Compute = Callable[[Mapping[str, Any]], Tensor]

# By function: the names of its arguments, and the function that computes the probabilities.
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
    """Raise `TypeError` for tensors and masks of unsupported types."""
    if given["query"].is_nested or given["key"].is_nested:
        raise TypeError("attention with nested tensors is not captured")
    mask = given.get("attn_mask")
    if mask is not None and type(mask) not in (Tensor, torch.nn.Parameter):
        raise TypeError(f"attention with a {type(mask).__name__} as mask is not captured")
    if given.get("static_k") is not None:
        raise TypeError("attention with static keys is not captured")


def _wide(value: Tensor) -> Tensor:
    """Return a tensor detached in float32, or float64 if it has that dtype."""
    return value.detach().to(torch.promote_types(value.dtype, torch.float32))


def _projected(given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return projected queries [L, N, E] and keys [S, N, E]."""
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


def _added(mask: Tensor, appended: int = 0) -> Tensor:
    """Return a mask as float summands of the scores, [..., S + appended].

    Args:
        mask: [..., S]; True (-inf) takes no part.
        appended: number of additional keys, which take part.
    """
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill_(mask, -math.inf)
    return functional.pad(_wide(mask), (0, appended)) if appended else _wide(mask)


def _softmax(scores: Tensor, unseen: float) -> Tensor:
    """Return the softmax over the keys, float32 [..., S]; `unseen` for queries without keys."""
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
