"""Scaled dot-product attention."""

from __future__ import annotations

from vinedresser.frameworks.torch_.call import Call
from vinedresser.pruning.torch_.context import Context, Layer


def attention(ctx: Context, call: Call) -> list[list[Layer]]:
    """Heads of query, key and value are united; so are the units of query and key.

    All are [batch, heads, tokens, units].
    """
    q, k, v = call["query"], call["key"], call["value"]
    heads = [ctx.at(one, 1) for one in (q, k, v)]
    for tensor, labels in zip((q, k, v), heads, strict=True):
        ctx.lock_all(tensor, "attention over channels", [0, 2])
        if labels is None:
            ctx.is_units_of_heads(tensor)
    found = heads[0]
    if q.shape[1] > 1:
        for labels in heads[1:]:
            found = ctx.meet(found, labels, "attention of other heads")
    bias = next((call[one] for one in ("attn_mask", "attn_bias") if call.has(one)), None)
    if bias is not None:
        ctx.lock_all(bias, "attention over channels", [bias.ndim - 1, bias.ndim - 2])
        if bias.ndim >= 3 and bias.shape[-3] > 1:
            found = ctx.meet(found, ctx.at(bias, -3), "attention with a constant mask")
    ctx.meet(ctx.at(q, 3), ctx.at(k, 3), "attention of other units")
    if found is not None:
        ctx.head_labels.append(found)
    layers = [] if found is None else [Layer(1, found)]
    units = ctx.at(v, 3)
    if units is not None:
        layers.append(Layer(3, units))
    return [layers, *([] for _ in call.outputs[1:])]
