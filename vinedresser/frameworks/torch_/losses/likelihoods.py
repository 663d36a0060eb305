"""Likelihoods of classes and of yes or no that are computed from elementary functions.

Shape legend: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.losses.logarithms import (
    Logarithm,
    logarithm,
    sum_to_one,
)
from vinedresser.frameworks.torch_.losses.picked_losses import picked_loss
from vinedresser.frameworks.torch_.losses.saved_tensors import saved

__all__ = ["Likelihood", "likelihood"]

_CROSS_ENTROPY, _BINARY = "cross_entropy", "binary_cross_entropy"
_WITH_LOGITS = "binary_cross_entropy_with_logits"
# Tolerance for sums of float32 probabilities, also of clamped ones.
_SUMS = 1e-3
# A single row may be anything.
_LEAST_ROWS = 2


class Likelihood(NamedTuple):
    """What a likelihood compared.

    Attributes:
        predictions: logarithms of probabilities, or as the function takes them.
        labels: class numbers, or probabilities [like predictions].
        function: name of the function in `torch.nn.functional` that computes the same, or its
            negative.
        negative: whether the node computes the negative of that function.
    """

    predictions: Tensor
    labels: Tensor
    function: str
    negative: bool


def likelihood(node: Any) -> Likelihood | None:
    """Return what an autograd node compares if it computes likelihoods of labels.

    A product is certain if its factors are logarithms of probabilities and probabilities without a
    gradient. A binary cross-entropy is certain if its terms have factors that sum to 1 and
    logarithms of probabilities that do. See also `picked_loss`.

    Args:
        node: node of the function that is applied to each element.

    Returns:
        None if it computes something else.
    """
    name = node.name()
    if name == "MulBackward0":
        return _of_shares(node)
    if name in ("SoftplusBackward0", "LogSigmoidBackward0"):
        return _of_signs(node)
    picked = picked_loss(node)
    if picked is not None:
        return Likelihood(picked.predictions, picked.labels, picked.function, picked.negative)
    if name == "SubBackward0":
        return _of_logits(node) or _of_rates(node) or _divergence(node) or _binary(node)
    return _binary(node) if name == "AddBackward0" else None


def _factors(node: Any) -> tuple[Any, Tensor | None] | None:
    """Return the factor of a product that has a gradient, as a node, and the other one."""
    if node is None or node.name() != "MulBackward0":
        return None
    (first, _), (second, _) = node.next_functions
    if (first is None) == (second is None):
        return None
    constant = saved(node, "self" if first is None else "other")
    if constant is not None and not constant.is_floating_point():
        constant = constant.to(torch.get_default_dtype())
    return first or second, constant


def _of_shares(node: Any) -> Likelihood | None:
    """Return what a product of probabilities and logarithms of a softmax compared."""
    factors = _factors(node)
    if factors is None or factors[1] is None:
        return None
    origin, shares = factors
    if origin.name() == "SubBackward0" and origin.next_functions[0][0] is None:
        # By hand, t (log t - log p).
        found = _distributions(origin.next_functions[1][0], shares)
        return None if found is None else found._replace(function="kl_div", negative=False)
    return _distributions(origin, shares)


def _divergence(node: Any) -> Likelihood | None:
    """Return what `F.kl_div` compared: t log t - t log p."""
    (entropy, _), (product, _) = node.next_functions
    if entropy is not None:
        return None
    factors = _factors(product)
    found = None if factors is None else _distributions(*factors)
    return None if found is None else found._replace(function="kl_div", negative=False)


def _distributions(origin: Any, labels: Tensor | None) -> Likelihood | None:
    """Return the logarithms that a node returned and the labels, if they are probabilities."""
    found = None if origin is None or labels is None else logarithm(origin)
    if found is None or labels is None or not labels.numel() or not labels.ndim:
        return None
    if found.values.shape != labels.shape or not bool(labels.min() >= 0):
        return None
    if not sum_to_one(labels, found.axis) or not sum_to_one(found.values.exp(), found.axis):
        return None
    return Likelihood(found.values, labels, _CROSS_ENTROPY, negative=True)


def _of_logits(node: Any) -> Likelihood | None:
    """Return what softplus(x) - x y compared, or relu(x) - x y as a part of it, or the negative."""
    for function, origin, labels, negative in _minus_products(node):
        logits = _argument_of_softplus(function, origin)
        if logits is None or logits.shape != labels.shape:
            continue
        if bool(((labels >= 0) & (labels <= 1)).all()):
            return Likelihood(logits, labels, _WITH_LOGITS, negative)
    return None


def _minus_products(node: Any) -> Iterator[tuple[Any, Any, Tensor, bool]]:
    """Yield how f(x) - x y may be computed.

    Yields:
        The node of f(x), that of x, the constant y, and whether the sign is the opposite.
    """
    if node._saved_alpha != 1:
        return
    for place, negative in ((0, False), (1, True)):
        function, product = (node.next_functions[one][0] for one in (place, 1 - place))
        factors = _factors(product)
        if function is None or factors is None:
            continue
        origin, constant = factors
        if constant is not None and constant.numel():
            yield function, origin, constant, negative


def _argument_of_softplus(node: Any, origin: Any) -> Tensor | None:
    """Return x if a node computes softplus(x), or relu(x), and another one x."""
    name = node.name()
    if name in ("LogBackward0", "Log1PBackward0"):
        return _argument_of_logarithm(node, origin)
    if node.next_functions[0][0] is not origin:
        return None
    least = getattr(node, "_saved_min", None) == 0 and getattr(node, "_saved_max", None) is None
    softplus = name == "SoftplusBackward0" and node._saved_beta == 1
    relu = name in ("ClampBackward1", "ClampMinBackward0") and least
    return saved(node, "self") if softplus or relu else None


def _argument_of_logarithm(node: Any, origin: Any) -> Tensor | None:
    """Return x if a node computes log(1 + exp(x)), and another one x."""
    adds = node.name() == "LogBackward0"
    inner = node.next_functions[0][0]
    if adds and inner is not None and inner.name() == "AddBackward0":
        inner = next((one for one, _ in inner.next_functions if one is not None), None)
    argument, exponential = saved(node, "self"), _exponential(inner, origin)
    if argument is None or exponential is None:
        return None
    wanted = exponential + 1 if adds else exponential
    return exponential.log() if torch.allclose(argument, wanted) else None


def _exponential(node: Any, origin: Any) -> Tensor | None:
    """Return exp(x) if a node computes it, and another one x."""
    if node is None or node.name() != "ExpBackward0" or node.next_functions[0][0] is not origin:
        return None
    found = saved(node, "result")
    # Their logarithm must be finite.
    return found if found is not None and bool((found > 0).all() & found.isfinite().all()) else None


def _of_rates(node: Any) -> Likelihood | None:
    """Return what exp(x) - x y compared, the loss of counts by the logarithms of rates."""
    for function, origin, counts, negative in _minus_products(node):
        rates = _exponential(function, origin)
        if rates is None or rates.shape != counts.shape:
            continue
        if bool((counts >= 0).all()):
            return Likelihood(rates.log(), counts, "poisson_nll_loss", negative)
    return None


def _of_signs(node: Any) -> Likelihood | None:
    """Return what softplus(-s x) or logsigmoid(s x) compared, with s of -1 and 1."""
    logits, origin = saved(node, "self"), node.next_functions[0][0]
    sign = 1.0 if node.name() == "LogSigmoidBackward0" else -1.0
    if origin is not None and origin.name() == "NegBackward0":
        sign, origin = -sign, origin.next_functions[0][0]
    factors = _factors(origin)
    if logits is None or factors is None or factors[1] is None:
        return None
    signs = factors[1]
    if signs.shape != logits.shape or signs.numel() < _LEAST_ROWS:
        return None
    if not bool((signs.abs() == 1).all() & (signs != signs.reshape(-1)[0]).any()):
        return None
    negated = origin is not node.next_functions[0][0]
    values = (-logits if negated else logits) * signs
    labels = (signs * sign > 0).to(logits.dtype)
    return Likelihood(values, labels, _WITH_LOGITS, negative=node.name() == "LogSigmoidBackward0")


def _binary(node: Any) -> Likelihood | None:
    """Return what y log p + (1 - y) log(1 - p) compared, or the negative."""
    one_term, other_term = (_term(origin) for origin, _ in node.next_functions)
    if one_term is None or other_term is None:
        return None
    (yes, first), (no, second) = one_term, other_term
    if node.name() == "SubBackward0":
        no = -no
    if node._saved_alpha != 1 or yes.shape != no.shape or yes.shape != first.values.shape:
        return None
    if second.values.shape != yes.shape or not yes.numel():
        return None
    negative = bool((yes + no).mean() > 0)
    yes, no = (yes, no) if negative else (-yes, -no)
    one = torch.ones_like(yes)
    complementary = torch.allclose(yes + no, one, atol=_SUMS) and bool((yes >= 0).all())
    probable = first.values.exp() + second.values.exp()
    if not complementary or not torch.allclose(probable, one.to(probable.dtype), atol=_SUMS):
        return None
    if first.complement and not second.complement:
        yes, first = no, second
    if first.logits is not None:
        return Likelihood(first.logits, yes, _WITH_LOGITS, negative)
    return Likelihood(first.values.exp().clamp(max=1), yes, _BINARY, negative)


def _term(node: Any) -> tuple[Tensor, Logarithm] | None:
    """Return the constant factor and the logarithm of a product, perhaps negated."""
    sign = 1
    if node is not None and node.name() == "NegBackward0":
        sign, node = -1, node.next_functions[0][0]
    factors = _factors(node)
    if factors is None or factors[1] is None or factors[0] is None:
        return None
    found = logarithm(factors[0])
    return None if found is None else (sign * factors[1], found)
