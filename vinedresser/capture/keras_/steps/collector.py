"""What is seen of one step or forward, under its names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from vinedresser.capture.keras_.attention import attention_scores
from vinedresser.capture.keras_.backends.backend import Backend
from vinedresser.capture.keras_.calls.interception import Original
from vinedresser.capture.keras_.names import Names
from vinedresser.capture.keras_.nesting import arguments, leaves
from vinedresser.capture.keras_.steps.updates import Update
from vinedresser.capture.shield import Shield

__all__ = ["Collector", "Take", "is_loss"]

# Takes a tensor under its full name.
Take = Callable[[str, Any], None]


class Collector:
    """A `Sight` that names what it sees and hands on what is asked for.

    Args:
        names: of a watched model.
        backend: under Keras.
        asks: says of a full name whether the tensor is asked for.
        take: takes it.
        met: is told the identities of the model's layers.
        shield: around all of it.
    """

    def __init__(
        self,
        names: Names,
        backend: Backend,
        asks: Callable[[str], bool],
        take: Take,
        *,
        met: Callable[[Iterable[int]], None],
        shield: Shield,
    ) -> None:
        self._names = names
        self._backend = backend
        self._asks = asks
        self._take = take
        self._met = met
        # Calls of each layer so far, by path.
        self._calls: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._strangers: set[int] = set()
        self._compared = False
        # That is being applied.
        self._update: Update | None = None
        # What the root has returned last.
        self._returned: Any = None
        guard = shield.guard
        self._guarded_inputs = guard("the inputs of", self._inputs, names=0)
        self._guarded_outputs = guard("the outputs of", self._outputs, names=0)
        self._guarded_path = guard("the name of a layer", self._path)
        self._guarded_scores = guard("the attention of", self._scores, names=0)
        self.mean_updated = guard("a loss", self._mean_updated)
        self.compared = guard("labels and predictions", self._see_compared)
        self.updating = guard("the update of an optimizer", self._updating)
        self.updated = guard("the change by an optimizer", self._updated)
        self.see_data = guard("labels and predictions", self._see_data)

    def layer_called(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """See `Sight.layer_called`."""
        # Keras only asks for shapes.
        path = None if in_symbolic_scope() else self._guarded_path(layer)
        if path is None:
            return original(layer, *args, **kwargs)
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        name = f"{path}#{call}" if call else path
        self._guarded_inputs(name, args, kwargs)
        output = original(layer, *args, **kwargs)
        self._guarded_outputs(name, output)
        if layer is self._names.model:
            self._returned = output
        return output

    def attended(self, original: Original, layer: Any, args: Any, kwargs: Any) -> Any:
        """See `Sight.attended`."""
        result = original(layer, *args, **kwargs)
        path = None if in_symbolic_scope() else self._guarded_path(layer)
        if path is not None:
            # Its call was counted when it began.
            call = self._calls.get(path, 1) - 1
            name = f"attention/{path}#{call}" if call else f"attention/{path}"
            self._guarded_scores(name, layer, result, args, kwargs)
        return result

    def see_loss(self, name: str, value: Any) -> None:
        """See `Sight.see_loss`."""
        self._offer(f"losses/{name}", value)

    def _path(self, layer: Any) -> str | None:
        """Return the path of a layer; None where it belongs to no watched model."""
        identity = id(layer)
        if identity not in self._paths and identity not in self._strangers:
            # It may just have been built.
            self._paths = {id(one): path for path, one in self._names.layers()}
            self._met(self._paths)
            if identity not in self._paths:
                self._strangers.add(identity)
        return self._paths.get(identity)

    def _inputs(self, name: str, args: Any, kwargs: Any) -> None:
        self._offer(f"inputs/{name}", arguments(args, kwargs))

    def _outputs(self, name: str, output: Any) -> None:
        self._offer(f"outputs/{name}", output)

    def _scores(self, name: str, layer: Any, result: Any, args: Any, kwargs: Any) -> None:
        if self._asks(name):
            self._take(name, attention_scores(layer, result, args, kwargs))

    def _mean_updated(self, metric: Any, value: Any) -> None:
        if is_loss(metric.name) and any(metric is one for one in self._names.model.metrics):
            self.see_loss(f"{self._names.prefix}{metric.name}", value)

    def _see_compared(self, owner: Any, labels: Any, predictions: Any) -> None:
        model = self._names.model
        if owner is model or owner is getattr(model, "_compile_loss", None):
            self._compared = True
            self._see_batch(labels, predictions)

    def _see_data(self, data: Any) -> None:
        """Take labels and predictions from the data and the root's output, if no loss did.

        Args:
            data: what a step was given: inputs, labels and sample weights, or inputs alone.
        """
        if not self._compared:
            labels = data[1] if isinstance(data, (tuple, list)) and len(data) > 1 else None
            self._see_batch(labels, self._returned)

    def _see_batch(self, labels: Any, predictions: Any) -> None:
        for kind, value in (("labels", labels), ("predictions", predictions)):
            for key, one in self._by_output(value).items():
                self._offer(f"{kind}/{self._names.prefix}{key}", one)

    def _by_output(self, value: Any) -> dict[str, Any]:
        """Return labels or predictions by the names of the outputs that they belong to.

        Args:
            value: one tensor ("batch"), a mapping, or a sequence in the order of the outputs.
        """
        if isinstance(value, dict):
            return {str(key): one for key, one in value.items()}
        if not isinstance(value, (list, tuple)):
            return {"batch": value}
        if len(value) == 1:
            return {"batch": value[0]}
        keys = list(getattr(self._names.model, "output_names", None) or [])
        if len(keys) != len(value):
            keys = [f"batch[{place}]" for place in range(len(value))]
        return dict(zip(keys, value, strict=True))

    def _updating(self, optimizer: Any, gradients: Any, variables: Any) -> None:
        update = Update(self._names, self._backend, optimizer, gradients, variables)
        update.hand_over(self._asks, self._take)
        self._update = update

    def _updated(self) -> None:
        update, self._update = self._update, None
        if update is not None:
            update.hand_over_change(self._take)

    def _offer(self, name: str, value: Any) -> None:
        for full, tensor in leaves(value, name, self._backend.is_tensor):
            if self._asks(full):
                self._take(full, self._backend.dense(tensor))


def is_loss(name: str) -> bool:
    """Say whether a mean or a log of this name is a loss, as Keras names them."""
    return name == "loss" or name.endswith("_loss")
