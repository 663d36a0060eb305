"""Implicit biases of layers in closed form; forward-mode derivatives would cost another forward."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vinedresser.frameworks.torch_.call import Call

__all__ = [
    "attention",
    "batch_norm",
    "convolution",
    "group_norm",
    "layer_norm",
    "rms_norm",
    "softmax",
]


def _per_channel(values: torch.Tensor, ndim: int) -> torch.Tensor:
    """Return values [C] as [1, C, 1, ...]."""
    return values.view(1, -1, *[1] * (ndim - 2))


def convolution(call: Call) -> torch.Tensor | None:
    """Return the bias of a convolution, transposed or not, [1, C, 1, ...]."""
    bias: torch.Tensor | None = call["bias"]
    return None if bias is None else _per_channel(bias, call.outputs[0].ndim)


def batch_norm(call: Call) -> torch.Tensor:
    """Return beta - mean * gamma / sqrt(var + eps) with the running statistics, [1, C, 1, ...].

    With the statistics of the batch, as instance norm has them, the result has the shape of y.
    """
    y = call.outputs[0]
    eps: float = call["eps" if call.has("eps") else "epsilon"]
    scale, shift = call["weight"], call["bias"]
    if call.has("training") and call["training"]:
        rstd = _per_channel(call.outputs[2], y.ndim)
        return _normalised(y, None if shift is None else _per_channel(shift, y.ndim), rstd, eps)
    mean, rstd = call["running_mean"], torch.rsqrt(call["running_var"] + eps)
    scaled = mean if scale is None else mean * scale
    bias = -scaled * rstd if shift is None else torch.addcmul(shift, scaled, rstd, value=-1)
    return _per_channel(bias.to(y.dtype), y.ndim)


def _normalised(
    y: torch.Tensor, shift: torch.Tensor | None, rstd: torch.Tensor, eps: float
) -> torch.Tensor:
    """Return y - J x where y = gamma (x - mean) rstd + beta and the statistics depend on x.

    But for eps, such a y does not change with the scale of x: J x = eps rstd^2 (y - beta).
    """
    centred = y if shift is None else y - shift
    return y - eps * rstd**2 * centred


def layer_norm(call: Call) -> torch.Tensor:
    """Return the implicit bias of layer norm, in the shape of its result."""
    return _normalised(call.outputs[0], call["bias"], call.outputs[2], call["eps"])


def group_norm(call: Call) -> torch.Tensor:
    """Return the implicit bias of group norm, in the shape of its result."""
    y, _, rstd = call.outputs
    channels = rstd.repeat_interleave(call["C"] // call["group"], dim=1)
    shift: torch.Tensor | None = call["bias"]
    return _normalised(
        y,
        None if shift is None else _per_channel(shift, y.ndim),
        channels.view(*channels.shape, *[1] * (y.ndim - 2)),
        call["eps"],
    )


def rms_norm(call: Call) -> torch.Tensor:
    """Return the implicit bias of RMS norm, in the shape of its result."""
    y, rstd = call.outputs
    given: float | None = call["eps"]
    eps = torch.finfo(y.dtype).eps if given is None else given
    return _normalised(y, None, rstd, eps)


def softmax(call: Call) -> torch.Tensor:
    """Return y - y (x - <y, x>) along the dimension of a softmax, in the shape of its result."""
    y = call.outputs[0]
    # Masked scores are -inf, and their part is zero.
    x = call["self"].to(y.dtype).masked_fill(y == 0, 0)
    bias: torch.Tensor = y - y * (x - (y * x).sum(call["dim"], keepdim=True))
    return bias


def attention(call: Call, dependent: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the implicit bias of a fused softmax attention.

    Its result is P v with P = softmax(S + mask), S = scale q k^T.

    Args:
        call: the call, with its outputs.
        dependent: those of query, key and value that depend on the model's input.

    Returns:
        The shape of the result, [batch, heads, queries, features].

    Raises:
        NotImplementedError: the mask depends on the model's input.
    """
    query, key, value = call["query"], call["key"], call["value"]
    known = [any(one is given for one in dependent) for given in (query, key, value)]
    if sum(known) < len(dependent):
        raise NotImplementedError("the mask of an attention depends on the input")
    y = call.outputs[0]
    repeats = query.shape[-3] // key.shape[-3]
    if repeats > 1:
        key, value = (one.repeat_interleave(repeats, dim=-3) for one in (key, value))
    given = call["scale"]
    scale = query.shape[-1] ** -0.5 if given is None else given
    scores = scale * query @ key.transpose(-2, -1)
    name = next((one for one in ("attn_mask", "attn_bias") if call.has(one)), None)
    mask = None if name is None else call[name]
    masked = scores if mask is None else scores + mask
    if call["is_causal"]:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=y.device).triu(1)
        masked = masked.masked_fill(later, -torch.inf)
    weights = masked.softmax(-1)
    # The derivative of the scores, which are homogeneous in query and key.
    tangent = (known[0] + known[1]) * scores
    tangent = weights * (tangent - (weights * tangent).sum(-1, keepdim=True))
    bias: torch.Tensor = (1 - known[2]) * y - tangent @ value
    return bias
