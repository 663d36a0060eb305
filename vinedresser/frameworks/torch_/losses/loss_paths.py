"""What lies between a loss and a function that compares predictions with labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vinedresser.frameworks.torch_.losses.recomputed import result_shape
from vinedresser.frameworks.torch_.losses.saved_tensors import saved

__all__ = ["SHAPES", "Path", "path_below"]

SHAPES = ("ViewBackward0", "UnsqueezeBackward", "SqueezeBackward", "ReshapeAliasBackward0")
"""Beginnings of the names of nodes that change the shape of a tensor, but not the order of its
elements."""
# Functions that treat all elements of a loss alike.
_PLAIN = (
    *SHAPES,
    *("MeanBackward", "SumBackward", "NegBackward0", "AddBackward0", "SubBackward0"),
    *("CloneBackward0", "MulBackward1", "DivBackward1", "StackBackward0", "CatBackward0"),
    "ToCopyBackward0",
)
_CHOICES = ("IndexBackward0", "MaskedSelectBackward0")
# Functions of errors, such as the root of their mean.
_OF_ERRORS = ("SqrtBackward0", "LogBackward0", "Log1PBackward0", "WhereBackward0")


class Path(NamedTuple):
    """The functions between a loss and a node of its graph.

    Attributes:
        weights: constants by which the elements are multiplied, not negative; 0 leaves one out.
        mixed: whether the elements also have weights with a gradient, such as a learned precision,
            or the loss is a nonlinear function of them.
    """

    weights: tuple[Tensor, ...] = ()
    mixed: bool = False

    def leaves_out(self, like: Tensor) -> Tensor | None:
        """Return which elements do not count.

        Args:
            like: tensor [rows, ...] with the shape of the elements.

        Returns:
            bool [like ``like``]; None if it is not known.
        """
        out = torch.zeros_like(like, dtype=torch.bool)
        for weights in self.weights:
            aligned = _aligned(weights, like)
            if aligned is not None:
                out = out | (aligned == 0)
            elif bool((weights == 0).any()):
                return None
        return out

    def by_label(self, labels: Tensor) -> bool:
        """Return whether elements with the same label have the same constant weight.

        Args:
            labels: labels [...] of the elements.
        """
        for weights in self.weights:
            aligned = _aligned(weights, labels)
            if aligned is None:
                return False
            values, own = aligned.reshape(-1).double(), labels.reshape(-1)
            classes, number = own.unique(return_inverse=True)
            empty = values.new_zeros(len(classes))
            least, most = (
                empty.scatter_reduce(0, number, values, way, include_self=False)
                for way in ("amin", "amax")
            )
            if not torch.equal(least, most):
                return False
        return True


def path_below(path: Path | None, node: Any, place: int) -> Path | None:
    """Return the path from a loss to an argument of a node.

    Args:
        path: the path to the node; None if it is unknown.
        node: autograd node.
        place: position of the argument among those of the function that are tensors.

    Returns:
        None if it is not certain that the loss is an average over the elements.
    """
    name = node.name()
    if path is None or name.startswith(_PLAIN):
        return path
    if name in ("MulBackward0", "DivBackward0"):
        return _below_product(path, node, place)
    if name in _CHOICES or (name == "WhereBackward0" and _has_constant(node)):
        counted = _counted(node, place)
        return None if counted is None else path._replace(weights=(*path.weights, counted))
    return path._replace(mixed=True) if name in _OF_ERRORS else None


def _has_constant(node: Any) -> bool:
    return any(origin is None for origin, _ in node.next_functions)


def _below_product(path: Path, node: Any, place: int) -> Path | None:
    """Return the path to a factor of a product or to the dividend of a quotient."""
    origins = [origin for origin, _ in node.next_functions]
    quotient = node.name() == "DivBackward0"
    if quotient and place == 1:
        return None
    if None not in origins:
        return path._replace(mixed=True)
    weights = saved(node, "other" if origins[1] is None else "self")
    if weights is None:
        return None
    if weights.numel() == 1:
        return path
    if not bool((weights >= 0).all()):
        return None
    # Only whether an element counts matters.
    return path if quotient else path._replace(weights=(*path.weights, weights))


def _counted(node: Any, place: int) -> Tensor | None:
    """Return which elements of an argument of a node its result has, bool; None if unknown."""
    if node.name() == "WhereBackward0":
        condition = saved(node, "condition")
        return condition if condition is None or place == 0 else ~condition
    if node.name() == "MaskedSelectBackward0":
        return saved(node, "mask")
    # Unpacking may run the user's code.
    if any(index.unpack_hook is not None for index in node._raw_saved_indices):
        return None
    indices = node._saved_indices
    if any(index is None for index in indices):
        return None
    shape = result_shape(*node.next_functions[0])
    chosen = torch.zeros(shape, dtype=torch.bool, device=indices[0].device)
    chosen[tuple(indices)] = True
    return chosen


def _aligned(weights: Tensor, like: Tensor) -> Tensor | None:
    """Return weights of the elements of a tensor in its shape; None if they do not fit.

    Weights may be those of means over the last axes.
    """
    if weights.ndim == like.ndim and _fits(weights.shape, like.shape):
        return weights.expand_as(like)
    if weights.numel() == like.numel():
        # Between them, only the shape changes.
        return weights.reshape(like.shape)
    if weights.ndim and weights.ndim < like.ndim and weights.shape == like.shape[: weights.ndim]:
        return weights.reshape(*weights.shape, *[1] * (like.ndim - weights.ndim)).expand_as(like)
    return None


def _fits(weights: torch.Size, like: torch.Size) -> bool:
    return all(one in (1, other) for one, other in zip(weights, like, strict=True))
