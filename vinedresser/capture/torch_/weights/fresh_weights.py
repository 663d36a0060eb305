"""Weights that still have the random values that torch gave them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vinedresser.capture.adapters.drawn_values import from_normal, from_uniform

# Elements of a weight that are looked at: enough to be sure, and quick for any model.
_MOST = 1 << 14


def fresh_weights(modules: Iterable[nn.Module]) -> set[int]:
    """Return the ids of the weights that still have random values of torch's initialisation.

    These are, of layers and recurrent layers (`reset_parameters`), uniform with a bound of
    1/sqrt(inputs) or 1/sqrt(hidden units); of attention and transformers, Xavier's uniform values;
    of embeddings, standard normal. Weights of fewer than 64 elements, vectors and weights with
    other dtypes than floats tell nothing.

    Args:
        modules: modules; of each, its own weights are looked at.
    """
    return {
        id(weight)
        for module in modules
        for weight in module._parameters.values()
        if weight is not None and _is_plain(weight) and _is_fresh(module, weight)
    }


def _is_plain(weight: nn.Parameter) -> bool:
    # Subclasses may be sharded or quantised.
    known = type(weight) is nn.Parameter and not is_lazy(weight)
    return known and weight.ndim >= 2 and weight.is_floating_point() and not weight.is_meta


def _is_fresh(module: nn.Module, weight: nn.Parameter) -> bool:
    values = _some(module, weight).float().cpu().numpy()
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return from_normal(values)
    return any(from_uniform(values, bound) for bound in _bounds(module, weight))


def _some(module: nn.Module, weight: nn.Parameter) -> Tensor:
    """Return elements of a weight, without the row of zeros of a padding token."""
    found = weight.detach()
    rows = max(_MOST // max(math.prod(weight.shape[1:]), 1), 1)
    padding = getattr(module, "padding_idx", None)
    if isinstance(padding, int) and 0 <= padding < min(rows, len(found)):
        return torch.cat([found[:padding], found[padding + 1 : rows]])
    return found[:rows]


def _bounds(module: nn.Module, weight: nn.Parameter) -> Iterator[float]:
    """Yield bounds of uniform values that torch may have drawn."""
    hidden = getattr(module, "hidden_size", 0)
    inputs = math.prod(weight.shape[1:])
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and hidden:
        yield 1 / math.sqrt(hidden)
    elif inputs:
        # He's initialisation with a gain of 1/sqrt(3), and Xavier's.
        yield 1 / math.sqrt(inputs)
    if inputs:
        yield math.sqrt(6 / (inputs + len(weight) * math.prod(weight.shape[2:])))
