"""Pruning of Keras models behind the interface that all frameworks share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import tree

from vinedresser.errors import PruningError
from vinedresser.frameworks.keras_.names import Names
from vinedresser.pruning.backend import Losses
from vinedresser.pruning.criteria.criterion import Floats, Measured, Measurement
from vinedresser.pruning.group import Group
from vinedresser.pruning.keras_.checks import checked_inputs, checked_model
from vinedresser.pruning.keras_.differentiation import Differentiation, differentiation
from vinedresser.pruning.keras_.graph import graph_of, values_of
from vinedresser.pruning.keras_.prunable import KerasPrunable
from vinedresser.pruning.keras_.rules.call import channel_axis
from vinedresser.pruning.keras_.user_code import user_code
from vinedresser.pruning.plan import Plan
from vinedresser.pruning.prunable import Prunable
from vinedresser.pruning.taylor_terms import TaylorTerms, check_loss, weights_by_layer
from vinedresser.pruning.weights import read_tensors, write_tensors

# For axes whose length the model leaves open, such as the height of images.
_OPEN = 64
_END = object()
_SEPARABLE = (keras.layers.SeparableConv1D, keras.layers.SeparableConv2D)


class KerasBackend:
    """The `vinedresser.pruning.backend.Backend` of Keras."""

    def prunable(self, model: Any, example: Any) -> Prunable[Any]:
        """See `Backend.prunable`."""
        return KerasPrunable(model, example)

    def removed(self, model: Any, plan: Plan) -> Any:
        """See `Backend.removed`."""
        # Any input shows how channels reach from layer to layer.
        inputs = [
            np.zeros([1, *(size or _OPEN for size in one.shape[1:])], one.dtype)
            for one in graph_of(model).inputs
        ]
        return KerasPrunable(model, inputs if len(inputs) > 1 else inputs[0]).removed(plan)

    def measure(
        self,
        model: Any,
        losses: Losses,
        groups: Iterable[Group],
        measurements: Iterable[Measurement],
    ) -> Measured:
        """See `Backend.measure`.

        Each loss is computed while the next one is taken from what `losses` returns, so that
        TensorFlow can record it.
        """
        wanted, every = [*measurements], [*groups]
        if not wanted:
            return {}
        found = [variable for variable in Names(model).variables() if variable.kind != "buffers"]
        parameters = {one.path: one.value for one in found if "float" in one.value.dtype}
        readers = weights_by_layer(every, "input") if "input_taylor" in wanted else {}
        axes = _filter_axes(every) if "weight_taylor" in wanted else {}
        terms, inputs = TaylorTerms(wanted), _Inputs()
        with (
            differentiation(list(parameters.values())) as engine,
            _reading(model, readers, inputs, engine),
        ):
            batches = iter(losses(model))
            while True:
                loss: Any = engine.recorded(lambda: next(batches, _END))
                if loss is _END:
                    break
                check_loss(_scalar(loss, terms.batches), terms.batches)
                gradients = engine.gradients(loss, [*inputs.tensors, *parameters.values()])
                _check_recorded(
                    gradients, terms.batches, unseen=bool(readers) and not inputs.tensors
                )
                by_name = dict(zip(parameters, gradients[len(inputs.tensors) :], strict=True))
                inputs.add_to(terms, gradients)
                for name, axis in axes.items():
                    terms.add_weight(name, _of_weight(parameters[name], by_name[name], axis))
                terms.end_batch()
        return terms.finish()

    def losses_of(self, model: Any, losses: Losses) -> list[float]:
        """See `Backend.losses_of`."""
        return [_scalar(loss, batch) for batch, loss in enumerate(losses(model))]

    def forward_timer(self, model: Any, example: Any) -> Callable[[], float]:
        """See `Backend.forward_timer`."""
        inputs = checked_inputs(checked_model(model), example)
        packed = tree.pack_sequence_as(graph_of(model).input, inputs)

        def forward(given: Any) -> Any:
            # Nothing that a layer assigns reaches the model.
            with keras.StatelessScope():
                return model(given, training=False)

        run = _compiled(forward)

        def timed() -> float:
            with user_code("the model does not run on the example"):
                start = time.perf_counter()
                for output in tree.flatten(run(packed)):
                    # Waits for the device.
                    keras.ops.convert_to_numpy(output)
                return time.perf_counter() - start

        return timed

    def write_weights(self, model: Any, path: Path) -> None:
        """See `Backend.write_weights`."""
        found = Names(model).variables()
        write_tensors({one.path: values_of(one.value) for one in found}, path)

    def read_weights(self, model: Any, path: Path) -> None:
        """See `Backend.read_weights`."""
        found = {variable.path: variable.value for variable in Names(model).variables()}
        shapes = {name: tuple(value.shape) for name, value in found.items()}
        for name, array in read_tensors(path, shapes).items():
            found[name].assign(array)


def _compiled(forward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that runs as the backend runs models in predictions."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        compiled: Callable[[Any], Any] = tf.function(forward)
        return compiled
    if keras.backend.backend() == "torch":
        import torch

        return torch.no_grad()(forward)
    return forward


def _scalar(loss: Any, batch: int) -> float:
    if not keras.ops.is_tensor(loss) or np.prod(loss.shape) != 1:
        raise PruningError(
            f"losses: batch {batch}: must be a scalar tensor, not {type(loss).__name__}"
        )
    return float(_array(loss))


def _check_recorded(gradients: Sequence[Any], batch: int, *, unseen: bool) -> None:
    """Check that a loss could be differentiated.

    Args:
        unseen: whether inputs of layers are needed, but none was seen.
    """
    if all(gradient is None for gradient in gradients):
        raise PruningError(
            f"losses: batch {batch}: the loss does not depend on the model's weights; compute each "
            "loss when it is asked for, as a generator does"
        )
    if unseen:
        raise PruningError(
            f"losses: batch {batch}: no layer was seen to run; call the model outside of a "
            "tf.function"
        )


class _Inputs:
    """What the layers that read channels got in the current batch.

    Attributes:
        tensors: their inputs, in the order of the calls.
    """

    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self._readers: list[tuple[Any, set[str]]] = []

    def add(self, layer: Any, weights: set[str], tensor: Any) -> None:
        """Keep the input of a call of the layer with these weights."""
        self.tensors.append(tensor)
        self._readers.append((layer, weights))

    def add_to(self, terms: TaylorTerms, gradients: Sequence[Any]) -> None:
        """Add the terms of all calls, and forget them.

        Args:
            terms: receives them.
            gradients: the gradients of the inputs, and then any others.
        """
        for number, (layer, weights) in enumerate(self._readers):
            if gradients[number] is not None:
                terms.add_input(weights, _of_input(layer, self.tensors[number], gradients[number]))
        self.tensors.clear()
        self._readers.clear()


@contextmanager
def _reading(
    model: Any, readers: Mapping[str, set[str]], inputs: _Inputs, engine: Differentiation
) -> Iterator[None]:
    """Observe the inputs of the layers that read channels."""
    changed = []
    try:
        for path, layer in Names(model).layers():
            if weights := readers.get(path):
                observe = partial(_observe, inputs, engine, layer, weights)
                # The layer's own attribute comes before the method of its class.
                vars(layer)["call"] = partial(_call, layer, layer.call, observe)
                changed.append(layer)
        yield
    finally:
        for layer in changed:
            del vars(layer)["call"]


def _observe(
    inputs: _Inputs, engine: Differentiation, layer: Any, weights: set[str], tensor: Any
) -> None:
    if engine.tracks(tensor):
        inputs.add(layer, weights, tensor)


def _call(
    layer: Any,
    original: Callable[..., Any],
    observe: Callable[[Any], None],
    *args: Any,
    **kwargs: Any,
) -> Any:
    tensor = args[0] if args else kwargs["inputs"]
    if isinstance(layer, _SEPARABLE):
        return _separable(layer, tensor, observe)
    observe(tensor)
    return original(*args, **kwargs)


def _separable(layer: Any, tensor: Any, observe: Callable[[Any], None]) -> Any:
    """Compute a separable convolution in its two steps: the second one reads what it is pruned by.

    Args:
        observe: called with what the depthwise convolution makes.
    """
    ops = keras.ops
    middle = ops.depthwise_conv(
        tensor,
        layer.depthwise_kernel,
        strides=layer.strides,
        padding=layer.padding,
        data_format=layer.data_format,
        dilation_rate=layer.dilation_rate,
    )
    observe(middle)
    result = ops.conv(middle, layer.pointwise_kernel, data_format=layer.data_format)
    if layer.bias is not None:
        sizes = [1] * len(result.shape)
        sizes[channel_axis(layer, len(sizes) - 1) + 1] = -1
        result = result + ops.reshape(layer.bias, sizes)
    return result if layer.activation is None else layer.activation(result)


def _of_input(layer: Any, tensor: Any, gradient: Any) -> Floats:
    """Return float64 [batch, channels]: the mean over space of activation times gradient.

    Molchanov et al., Pruning Convolutional Neural Networks for Resource Efficient Inference, ICLR
    2017, equation 7 before the absolute value.
    """
    product = tensor * gradient
    rank = len(product.shape)
    channels = channel_axis(layer, rank - 1) + 1
    space = [axis for axis in range(1, rank) if axis != channels]
    return _array(keras.ops.mean(product, axis=space) if space else product)


def _filter_axes(groups: Sequence[Group]) -> dict[str, int]:
    """Return the axis of the filters of each weight that makes channels."""
    return {member.tensor: member.axis for group in groups for member in group.of_role("filter")}


def _of_weight(variable: Any, gradient: Any, axis: int) -> Floats:
    """Return float64 [channels]: the sum over the filter of weight times gradient.

    Molchanov et al., Importance Estimation for Neural Network Pruning, CVPR 2019, equation 8 before
    the square.
    """
    if gradient is None:
        # The batch did not use the layer.
        return np.zeros(variable.shape[axis])
    others = [one for one in range(len(variable.shape)) if one != axis]
    return _array(keras.ops.sum(variable * gradient, axis=others))


def _array(tensor: Any) -> Floats:
    return np.asarray(keras.ops.convert_to_numpy(tensor), dtype=np.float64)
