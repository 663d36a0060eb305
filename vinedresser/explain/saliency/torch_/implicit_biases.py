"""The implicit bias of each operator: what its linear part leaves of its result.

With y = f(x), it is b = y - J x, where J is the Jacobian of f at x and x are all arguments that
depend on the model's input. The chain rule then gives, exactly and for any model, that an output is
<gradient, input> plus the sum of <gradient of y, b> over all operators. If f is homogeneous of
degree k, J x = k y by Euler's theorem, so ReLU, pooling and convolutions without bias leave
nothing, and a product of two activations leaves -y.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from vinedresser.explain.saliency.torch_ import activation_biases, layer_biases
from vinedresser.explain.saliency.torch_.biases import Bias
from vinedresser.frameworks.torch_.call import ATTENTION, Call

__all__ = ["DispatchState", "implicit_biases", "needs_arguments"]


class DispatchState(NamedTuple):
    """Dispatch keys of the thread; a mode's handler needs those of its caller for forward AD."""

    included: torch._C.DispatchKeySet
    excluded: torch._C.DispatchKeySet

    @classmethod
    def current(cls) -> DispatchState:
        """Return that of this thread."""
        _load_derivatives()
        return cls(
            torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        )


@cache
def _load_derivatives() -> None:
    """Load what torch loads at the first use of forward-mode differentiation."""
    with warnings.catch_warnings(), forward_ad.dual_level():
        # It compiles some derivatives with torch.jit.script, which it deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        forward_ad.make_dual(torch.zeros(()), torch.zeros(()))


_Dependent = Sequence[torch.Tensor]
_Biases = list[Bias | None]


def _names(*lists: str) -> frozenset[str]:
    return frozenset(name for names in lists for name in names.split())


# Homogeneous of degree 1 in all arguments that depend on the input, the others being constant.
_LINEAR = _names(
    "clone _to_copy contiguous lift_fresh alias _unsafe_view unsafe_split unsafe_chunk",
    "neg abs relu leaky_relu _prelu_kernel rrelu_with_noise dropout native_dropout",
    "sum mean nansum cumsum amax amin std linalg_vector_norm norm trace",
    "sort topk kthvalue median flip roll repeat tril triu diag_embed",
    "index index_select gather take im2col col2im",
    "pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle",
    "max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d",
    "adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d",
    "adaptive_max_pool2d adaptive_max_pool3d",
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d",
    "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d",
    "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d",
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa",
    "reflection_pad1d reflection_pad2d reflection_pad3d",
    "replication_pad1d replication_pad2d replication_pad3d",
)
_DEGREES = {"sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "var": 2.0}
_PRODUCTS = _names("mul mm bmm mv dot")
# A product and a constant.
_ADDED_PRODUCTS = _names("addmm baddbmm addmv")
# Homogeneous of degree 1 unless one argument is constant.
_EXTREMES = _names("maximum minimum max min")
# Affine in all tensors at once.
_AFFINE = _names(
    "add sub rsub cat stack where copy index_put masked_fill masked_scatter select_scatter",
    "slice_scatter scatter scatter_add index_add index_copy constant_pad_nd fill zero",
)
# Of these, those without a constant if all tensors depend on the input.
_SUMS = _names("add sub cat stack copy")
# Layers whose only argument that depends on the input is the first.
_FAMILIES: dict[Callable[[Call], Bias | None], frozenset[str]] = {
    layer_biases.convolution: _names("convolution _convolution"),
    layer_biases.batch_norm: _names(
        "native_batch_norm cudnn_batch_norm miopen_batch_norm",
        "_native_batch_norm_legit _native_batch_norm_legit_no_training",
    ),
    layer_biases.layer_norm: _names("native_layer_norm"),
    layer_biases.group_norm: _names("native_group_norm"),
    layer_biases.rms_norm: _names("_fused_rms_norm"),
    layer_biases.softmax: _names("_softmax _safe_softmax"),
    activation_biases.hardtanh: _names("hardtanh"),
    activation_biases.silu: _names("silu"),
    activation_biases.sigmoid: _names("sigmoid"),
    activation_biases.tanh: _names("tanh"),
    activation_biases.gelu: _names("gelu"),
}
_LAYERS = {name: rule for rule, names in _FAMILIES.items() for name in names}


def needs_arguments(call: Call, dependent: _Dependent) -> bool:
    """Return whether the implicit bias is computed from the arguments, not only the result."""
    known = call.operator.is_view or call.name == "hardtanh"
    return not known and _degree(call, dependent) is None


def implicit_biases(call: Call, dependent: _Dependent, state: DispatchState) -> _Biases:
    """Return the implicit bias of each result of an operator, broadcastable to it; None for zero.

    Args:
        call: the call, with its outputs, and the arguments as they were before it.
        dependent: its arguments that depend on the model's input.
        state: dispatch keys outside of the mode.

    Raises:
        NotImplementedError: the operator has no forward-mode derivative.
    """
    none: _Biases = [None] * len(call.outputs)
    degree = 1.0 if call.operator.is_view else _degree(call, dependent)
    if degree is not None:
        return none if degree == 1 else [(1 - degree) * output for output in call.outputs]
    if call.name in _AFFINE:
        return _at_zero(call, dependent)
    if call.name in _ADDED_PRODUCTS:
        return [_of_added_product(call, dependent, state)]
    if call.name in ATTENTION:
        return [layer_biases.attention(call, dependent), *none[1:]]
    rule = _LAYERS.get(call.name)
    if rule is not None and len(dependent) == 1 and dependent[0] is call.args[0]:
        with suppress(NotImplementedError):
            return [rule(call), *none[1:]]
    return [*_by_forward_derivative(call, dependent, state)]


def _degree(call: Call, dependent: _Dependent) -> float | None:
    """Return the degree of homogeneity in the arguments, or None if there is none."""
    name = call.name
    only_first = len(dependent) == 1 and dependent[0] is call.args[0]
    degree: float | None = None
    if name in _LINEAR or (name == "constant_pad_nd" and call["value"] == 0):
        degree = 1.0 if only_first else None
    elif name in _PRODUCTS:
        degree = float(len(dependent))
    elif name == "div" and not (call.has("rounding_mode") and call["rounding_mode"]):
        degree = float(_is_among(call.args[0], dependent) - _is_among(call.args[1], dependent))
    elif name == "pow" and only_first and not isinstance(call.args[1], torch.Tensor):
        degree = float(call.args[1])
    elif name in _EXTREMES and len(dependent) == len(call.tensors):
        degree = 1.0
    return _DEGREES.get(name, degree)


def _is_among(value: Any, tensors: _Dependent) -> bool:
    return any(value is tensor for tensor in tensors)


def _replaced(values: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return nested lists and tuples with other tensors."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, list | tuple):
        return [_replaced(value, change) for value in values]
    return values


def _run_with(call: Call, change: Callable[[torch.Tensor], Any]) -> Any:
    """Run an operator with other tensors."""
    kwargs = {name: _replaced(value, change) for name, value in call.kwargs.items()}
    args = [_replaced(one, change) for one in call.args]
    result: torch.Tensor | tuple[torch.Tensor, ...] = call.operator(*args, **kwargs)
    return result


def _at_zero(call: Call, dependent: _Dependent) -> _Biases:
    """Return the result of an affine operator for an input of zeros."""
    alone = len(call.tensors) == len(dependent)
    if alone and call.name in _SUMS and not (call.has("other") and _is_number(call["other"])):
        return [None]

    def zeros(tensor: torch.Tensor) -> torch.Tensor:
        if _is_among(tensor, dependent):
            return torch.zeros_like(tensor)
        # In place, the operator changes it.
        return tensor.clone() if call.in_place and tensor is call.args[0] else tensor

    return [_finite(_run_with(call, zeros))]


def _of_added_product(
    call: Call, dependent: _Dependent, state: DispatchState
) -> torch.Tensor | None:
    """Return the implicit bias of beta * self + alpha * product."""
    if len(dependent) > 1:
        (bias,) = _by_forward_derivative(call, dependent, state)
    elif dependent[0] is call["self"]:
        # The product is the constant.
        bias = call.outputs[0] - call["beta"] * call["self"]
    else:
        bias = call["beta"] * call["self"]
    return None if bias is None else _finite(bias)


def _finite(bias: torch.Tensor) -> torch.Tensor:
    """Return a bias without the -inf of masked scores; their gradient is zero."""
    finite: torch.Tensor = bias.masked_fill(bias.isinf(), 0)
    return finite


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex)


def _by_forward_derivative(
    call: Call, dependent: _Dependent, state: DispatchState
) -> list[torch.Tensor | None]:
    """Return y - J x, with J x by forward-mode differentiation of the operator."""
    guard = torch._C._ForceDispatchKeyGuard(state.included, state.excluded)
    with guard, torch.no_grad(), forward_ad.dual_level():

        def dual(tensor: torch.Tensor) -> Any:
            if _is_among(tensor, dependent):
                # In place, the operator changes its first argument, a copy, and its tangent.
                changed = call.in_place and tensor is call.args[0]
                tangent = tensor.detach()
                return forward_ad.make_dual(tangent, tangent.clone() if changed else tangent)
            return tensor

        result = _run_with(call, dual)
        results = result if isinstance(result, list | tuple) else [result]
        tangents = [
            forward_ad.unpack_dual(one).tangent for one in results if isinstance(one, torch.Tensor)
        ]
    return [
        one if tangent is None else one - tangent
        for one, tangent in zip(call.outputs, tangents, strict=True)
    ]
