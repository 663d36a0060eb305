"""A Keras model as a TensorFlow function of outputs, gradients and terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.axes import Axes, Role, arrangement
from vinedresser.explain.saliency.enlarging import enlarged
from vinedresser.explain.saliency.keras_.graph import Found, Noted, noted_operators
from vinedresser.explain.saliency.options import Method, Postprocess
from vinedresser.explain.saliency.result import TOLERANCES, BiasTerm, Saliency
from vinedresser.explain.saliency.targets import Targets, checked_targets
from vinedresser.frameworks.keras_.double_precision import double_precision

__all__ = ["Shown", "Traced"]

# Added to the largest value, which may be zero; as in the implementation of the paper's authors.
_EPSILON = 1e-6


class Shown(NamedTuple):
    """What an explanation shows.

    Attributes:
        method: what the map shows.
        postprocess: what is done to each term of the map.
        channels_last: images are [batch, H, W, C].
        pixels: roles of the dimensions of the map, with their lengths; empty for no map.
    """

    method: Method
    postprocess: Postprocess
    channels_last: bool
    pixels: dict[Role, int]


class Traced:
    """A model, traced for inputs of one shape.

    Args:
        model: a built Keras model that returns [batch, outputs], or [batch].
        spec: shape and dtype of the inputs.
        shown: what to show.

    Raises:
        SaliencyError: the model's output cannot be explained.
    """

    def __init__(self, model: Any, spec: tf.TensorSpec, shown: Shown) -> None:
        self._model = model
        self._batch = spec.shape[0]
        self._shown = shown
        self._noted: list[Noted] = []
        self._in_map: list[bool] = []
        self._uncovered: dict[str, None] = {}
        self._tolerance = 0.0
        self._tokens = not spec.dtype.is_floating
        # False if examples cannot be told apart in some term.
        self._shared_out = True
        function = tf.function(self._run, autograph=False)
        # Keras computes in float32 otherwise.
        with double_precision() if spec.dtype == tf.float64 else nullcontext():
            self._function = function.get_concrete_function(
                spec, tf.TensorSpec([self._batch], tf.int64)
            )

    def explain(self, inputs: Any, targets: Targets) -> Saliency | None:
        """Decompose outputs; None if examples cannot be told apart somewhere.

        Args:
            inputs: as the model was traced for, [batch, ...].

        Raises:
            SaliencyError: the targets are not valid.
        """
        if not self._shared_out and self._batch > 1:
            return None
        chosen = checked_targets(targets, self._batch, self._outputs)
        given = np.full(self._batch, -1) if chosen is None else chosen
        found = self._function(inputs, tf.constant(given, tf.int64))
        sums = found["sums"].numpy()
        product, gradient = found["product"].numpy(), found["gradient"].numpy()
        shown = gradient if self._shown.method == "gradient" else product
        return Saliency(
            map=self._map(found["pictures"]),
            targets=found["chosen"].numpy(),
            outputs=found["values"].numpy(),
            input_term=product,
            attributions=shown.sum(-1) if self._tokens else shown,
            bias_terms={
                name: BiasTerm(one.layer, one.operator, row, in_map)
                for name, one, row, in_map in zip(
                    _named(self._noted), self._noted, sums, self._in_map, strict=True
                )
            },
            tolerance=self._tolerance,
            uncovered=tuple(self._uncovered),
        )

    def _map(self, pictures: list[Any]) -> NDArray[np.float32] | None:
        if not pictures:
            return None
        lengths = tuple(self._shown.pixels.values())
        maps = [enlarged(picture.numpy(), lengths) for picture in pictures]
        return np.asarray(np.sum(maps, axis=0), np.float32)

    def _run(self, inputs: Any, targets: Any) -> dict[str, Any]:
        """Build the graph."""
        given = tf.identity(inputs)
        graph = given.graph
        count = len(graph.get_operations())
        table = self._table(self._model(given, training=False))
        found = noted_operators(
            graph.get_operations()[count:],
            given,
            frozenset(layer.name for layer in self._model._flatten_layers(include_self=False)),
            channels_last=self._shown.channels_last,
        )
        if not found.leaves:
            raise SaliencyError(
                "inputs are integers, and the model looks up no embeddings with them: explain the "
                "part of the model after its embeddings"
            )
        chosen = tf.where(targets < 0, tf.argmax(table, 1), targets)
        values = tf.gather(table, chosen, batch_dims=1)
        outputs = [one.output for one in found.noted]
        gradients = tf.gradients(tf.reduce_sum(values), [*found.leaves, *outputs])
        count = len(found.leaves)
        if all(one is None for one in gradients[:count]):
            raise SaliencyError("the model's output does not depend differentiably on its input")
        parts = [
            tf.zeros_like(leaf) if one is None else tf.convert_to_tensor(one)
            for leaf, one in zip(found.leaves, gradients, strict=False)
        ]
        gradient = tf.concat(parts, -1)
        product = tf.concat(found.leaves, -1) * gradient
        return {
            "values": tf.cast(values, tf.float64),
            "chosen": chosen,
            "gradient": gradient,
            "product": product,
            **self._terms(found, gradients[count:], gradient, product),
        }

    def _table(self, output: Any) -> Any:
        """Return the model's output as [batch, outputs]."""
        if not isinstance(output, tf.Tensor):
            raise SaliencyError(
                f"the model returns {type(output).__name__}; it must return a tensor "
                "[batch, outputs]"
            )
        shape = output.shape.as_list()
        kind = output.dtype.name
        if len(shape) not in (1, 2) or shape[0] != self._batch or kind not in TOLERANCES:
            raise SaliencyError(
                f"the model returns {kind} {shape}; it must return float32 or float64 "
                f"[{self._batch}, outputs]"
            )
        self._tolerance = TOLERANCES[kind]
        table = output if len(shape) == 2 else tf.expand_dims(output, 1)
        self._outputs = int(table.shape[1])
        return table

    def _terms(
        self, found: Found, gradients: list[Any], gradient: Any, input_term: Any
    ) -> dict[str, Any]:
        """Return the sums of all terms, [terms, batch], and the pictures of each size."""
        self._uncovered = found.uncovered
        method = self._shown.method
        pictures: dict[tuple[int, ...], Any] = {}

        def add(one: _Term | None) -> None:
            if one is not None and one.picture is not None:
                size = tuple(one.picture.shape.as_list()[1:])
                picture = one.picture
                pictures[size] = pictures[size] + picture if size in pictures else picture

        sums = []
        for noted, above, product in _by_scope(found.noted, gradients):
            made = self._term(product, noted)
            if made is None:
                self._shared_out = False
                continue
            self._noted.append(noted)
            self._in_map.append(made.picture is not None)
            sums.append(tf.cast(made.sums, tf.float64))
            if method == "fullgrad":
                add(made)
            elif method == "simple_fullgrad":
                add(self._term(above, noted))
        shown = gradient if method == "gradient" else input_term
        add(_term(shown, found.axes, self._batch, [*self._shown.pixels], self._shown.postprocess))
        empty = tf.zeros([0, self._batch], tf.float64)
        return {
            "sums": tf.stack(sums) if sums else empty,
            "pictures": list(pictures.values()) if self._shown.pixels else [],
        }

    def _term(self, values: Any, noted: Noted) -> _Term | None:
        pixels = [*self._shown.pixels]
        return _term(values, noted.axes, self._batch, pixels, self._shown.postprocess)


def _by_scope(noted: list[Noted], gradients: list[Any]) -> Iterator[tuple[Noted, Any, Any]]:
    """Yield the last operator of each part of a layer, its gradient, and the sum of the terms.

    Layers such as layer norm consist of many operators whose terms cancel. Those of one shape are
    added, as if the layer were one operator.
    """
    groups: dict[tuple[Any, ...], list[tuple[Noted, Any, Any]]] = {}
    for one, given in zip(noted, gradients, strict=True):
        if given is not None:
            above = tf.convert_to_tensor(given)
            key = (one.scope, *one.output.shape.as_list(), *one.axes.items())
            groups.setdefault(key, []).append((one, above, above * one.bias))
    for group in groups.values():
        last, above, _ = group[-1]
        yield last, above, tf.add_n([product for _, _, product in group])


def _named(noted: list[Noted]) -> Iterator[str]:
    """Yield names of operators: layer and type, and the number of the call from the second on."""
    calls: Counter[str] = Counter()
    for one in noted:
        name = f"{one.layer}/{one.operator}" if one.layer else one.operator
        calls[name] += 1
        yield f"{name}#{calls[name]}" if calls[name] > 1 else name


class _Term(NamedTuple):
    """A term by example.

    Attributes:
        sums: sum over everything, [batch].
        picture: processed sum over everything but pixels, [batch, pixels...]; None if there are
            no pixels.
    """

    sums: Any
    picture: Any | None


def _term(
    values: Any, axes: Axes, batch: int, pixels: Sequence[Role], postprocess: str
) -> _Term | None:
    """Return a term; None if its examples cannot be told apart.

    Args:
        values: gradient times implicit bias, of known shape.
        axes: where examples and pixels lie in it.
        pixels: roles of the dimensions of the map; none for no map.
        postprocess: what is done before channels are summed.
    """
    shape, places = arrangement(values.shape.as_list(), axes, batch)
    if "example" not in places:
        return None
    arranged = tf.reshape(values, shape)
    roles: list[Role] = ["example", *pixels]
    kept = [places[role] for role in roles if role in places]
    order = [*kept, *(dim for dim in range(len(shape)) if dim not in kept)]
    arranged = tf.transpose(arranged, order)
    others = list(range(1, len(shape)))
    sums = tf.reduce_sum(arranged, others)
    if len(kept) < len(roles) or not pixels:
        return _Term(sums, None)
    shown = arranged if postprocess == "none" else tf.abs(arranged)
    picture = tf.reduce_sum(shown, others[len(pixels) :])
    if postprocess == "rescale":
        ends = [-1, *[1] * len(pixels)]
        least = tf.reshape(tf.reduce_min(shown, others), ends)
        most = tf.reshape(tf.reduce_max(shown, others), ends)
        layers = 1
        for dim in order[len(kept) :]:
            layers *= shape[dim]
        picture = (picture - layers * least) / (most - least + _EPSILON)
    return _Term(sums, picture)
