"""The rule of each operator, by its name without namespace and overload."""

from __future__ import annotations

from collections.abc import Callable

from vinedresser.frameworks.torch_.call import ATTENTION, Call
from vinedresser.pruning.torch_.context import Context, Layer
from vinedresser.pruning.torch_.rules import (
    attention,
    elementwise,
    linear,
    normalisation,
    reductions,
    shape,
)

__all__ = ["Rule", "rule_of"]

Rule = Callable[[Context, Call], list[list[Layer]]]

_FAMILIES: dict[Rule, str] = {
    elementwise.elementwise: "hardswish _prelu_kernel bernoulli uniform normal exponential copy",
    elementwise.identity: "clone detach alias contiguous lift_fresh lift _to_copy dropout",
    shape.restride: "as_strided",
    elementwise.filled_like: "zeros_like ones_like empty_like full_like rand_like randn_like zero "
    "fill",
    shape.move: "permute transpose t squeeze unsqueeze expand unbind repeat flip mT numpy_T "
    "movedim swapaxes",
    shape.reshape: "view _unsafe_view reshape _reshape_alias unflatten flatten",
    shape.split: "split split_with_sizes",
    shape.slice_: "slice",
    shape.select: "select",
    shape.index: "index index_select gather",
    shape.roll: "roll",
    shape.pad: "constant_pad_nd",
    shape.cat: "cat",
    shape.stack: "stack",
    shape.pixel_shuffle: "pixel_shuffle pixel_unshuffle",
    shape.channel_shuffle: "channel_shuffle native_channel_shuffle",
    shape.glu: "glu",
    reductions.reduce: "mean sum amax amin max min var std var_mean std_mean prod any all argmax "
    "argmin logsumexp linalg_vector_norm norm",
    reductions.along: "_softmax _safe_softmax _log_softmax cumsum cumprod sort topk",
    reductions.spatial: "max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d "
    "avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d "
    "adaptive_max_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d "
    "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa reflection_pad1d reflection_pad2d "
    "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d",
    reductions.embedding: "embedding",
    linear.convolution: "convolution",
    linear.product: "mm addmm bmm baddbmm",
    normalisation.batch_norm: "native_batch_norm cudnn_batch_norm miopen_batch_norm "
    "_native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update",
    normalisation.layer_norm: "native_layer_norm",
    normalisation.group_norm: "native_group_norm",
    normalisation.weight_norm: "_weight_norm_interface",
    attention.attention: " ".join(ATTENTION),
}

_RULES = {name: rule for rule, names in _FAMILIES.items() for name in names.split()}


def rule_of(call: Call) -> Rule | None:
    """Return the rule of an operator; None if there is none."""
    if call.has("out"):
        # The result may be a part of another tensor, which keeps its own labels.
        return None
    return elementwise.elementwise if call.pointwise else _RULES.get(call.name)
