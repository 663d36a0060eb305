"""Whether a model and an example can be used for pruning."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from vinedresser.errors import PruningError
from vinedresser.pruning.keras_.graph import functional_of, graph_of

__all__ = ["checked_inputs", "checked_model"]


def checked_model(model: Any) -> Any:
    """Return the model.

    Raises:
        PruningError: it is not a Functional or Sequential model, or it is not built.
    """
    name = getattr(model, "name", "")
    if not isinstance(model, keras.Model):
        raise PruningError(f"a {type(model).__name__} is not a Keras model; give a keras.Model")
    if functional_of(model) is not None:
        return model
    if isinstance(model, keras.Sequential) and type(model).call is keras.Sequential.call:
        raise PruningError(
            f"{name} (Sequential): the model is not built; add keras.Input(shape) as its first "
            "layer, or call it on a batch"
        )
    raise PruningError(
        f"{name} ({type(model).__name__}): the model has a call of its own; only Functional and "
        "Sequential models can be pruned: build it as keras.Model(inputs, outputs)"
    )


def checked_inputs(model: Any, example: Any) -> list[Any]:
    """Return an example as one tensor per input.

    Args:
        model: a Functional or Sequential model.
        example: an array, or a list or dictionary of arrays.

    Raises:
        PruningError: it has not the structure or shapes of the model's inputs.
    """
    inputs = graph_of(model).inputs
    if isinstance(example, dict):
        missing = [one.name for one in inputs if one.name not in example]
        if missing:
            raise PruningError(
                f"the example lacks the input {missing[0]}; it has {', '.join(map(str, example))}"
            )
        example = [example[one.name] for one in inputs]
    arrays = list(example) if isinstance(example, (list, tuple)) else [example]
    if len(arrays) != len(inputs):
        raise PruningError(
            f"the example has {len(arrays)} arrays; the model has {len(inputs)} inputs: "
            f"{', '.join(one.name for one in inputs)}"
        )
    return [_checked(one, array) for one, array in zip(inputs, arrays, strict=True)]


def _checked(tensor: Any, array: Any) -> Any:
    shape = tuple(np.shape(array))
    expected = tuple(tensor.shape)
    fits = len(shape) == len(expected) and all(
        size in (None, given) for size, given in zip(expected, shape, strict=True)
    )
    if not fits or not shape or shape[0] == 0:
        wanted = ", ".join("any" if size is None else str(size) for size in expected)
        raise PruningError(
            f"the example for the input {tensor.name} has shape {list(shape)}; the model takes "
            f"[{wanted}]"
        )
    return keras.ops.convert_to_tensor(array, dtype=tensor.dtype)
