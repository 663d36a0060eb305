"""Names of observables: which ones a query means, and how results are labelled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from vinedresser.errors import UnknownTensor, did_you_mean
from vinedresser.queries.observables import STANDARD

__all__ = ["SPELLINGS", "check_names", "label_of", "matching", "path_of"]

# Names of values that stand for what a training offers under a name of its own.
SPELLINGS = {
    "lr": ("optimizer_state/lr",),
    "epoch": ("metrics/epoch", "saved/epoch"),
}
# Kinds of tensors whose path ends with the name of a parameter, or with two names.
_PARAMETERS = ("weights", "biases", "gradients", "updates", "buffers", "weight_taylor")
_STATES = ("optimizer_state",)


def matching(pattern: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that a name of a query stands for, in their order.

    In this order: the very name; a glob, in which ``*`` is any text; all names of a collection or
    module (``gradients``, ``outputs/encoder``). `loss` also stands for the first of the losses.

    Args:
        pattern: name or glob, as in the query.
        names: the names on offer.
    """
    if pattern in names:
        return (pattern,)
    if "*" in pattern:
        pieces = pattern.split("*")
        return tuple(name for name in names if _fits(name, pieces))
    if pattern == "loss":
        return tuple(name for name in names if name.startswith("losses/"))[:1]
    return tuple(name for name in names if name.startswith(pattern) and name[len(pattern)] in "/.[")


def _fits(name: str, pieces: Sequence[str]) -> bool:
    """Return whether a name consists of pieces with any text between them, in linear time."""
    first, *inner, last = pieces
    if not name.startswith(first) or not name.endswith(last):
        return False
    place, end = len(first), len(name) - len(last)
    for piece in inner:
        place = name.find(piece, place, end)
        if place < 0:
            return False
        place += len(piece)
    return place <= end


def check_names(needs: Sequence[str] | frozenset[str], names: Sequence[str]) -> None:
    """Check that every name of a query stands for something.

    Args:
        needs: `Query.needs`.
        names: the names on offer.

    Raises:
        UnknownTensor: one does not; the message suggests similar names, or says how a division is
            written.
    """
    for need in sorted(needs):
        if matching(need, names):
            continue
        left, _, right = need.partition("/")
        both = [*names, *STANDARD]
        if right and matching(left, both) and matching(right, both):
            raise UnknownTensor(f"{need}: no such name; a division has spaces: {left} / {right}")
        kinds = {name.partition("/")[0] for name in names}
        hint = did_you_mean(need, [*sorted(kinds), *names])
        raise UnknownTensor(f"{need}: no such name{hint or _offered(names)}")


def _offered(names: Sequence[str]) -> str:
    kinds = dict.fromkeys(name.partition("/")[0] for name in names)
    return f"; the training offers {', '.join(kinds)}" if kinds else "; nothing is offered yet"


def path_of(name: str) -> str:
    """Return a name without its kind, such as ``conv1.weight``; the name if it has no kind."""
    kind, slash, path = name.partition("/")
    return path if slash else kind


@lru_cache(maxsize=1 << 14)
def label_of(name: str, by: str) -> str:
    """Return the label of a tensor in results by "layer" or "tensor".

    Args:
        name: name of the tensor, such as ``gradients/conv1.weight``.
        by: "tensor": ``conv1.weight``; "layer": ``conv1``, the module or layer to which it belongs.
    """
    kind, path = name.partition("/")[0], path_of(name)
    if by == "tensor":
        return path
    for _ in range(2 if kind in _STATES else kind in _PARAMETERS):
        cut = max(path.rfind("."), path.rfind("/"))
        path = path[:cut] if cut > 0 else path
    return path
