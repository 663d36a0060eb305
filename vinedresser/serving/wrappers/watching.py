"""Watching a model: a function, a torch module, a Keras model or a loaded MLflow model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from numpy.typing import NDArray

from vinedresser.columns.describing import describe
from vinedresser.columns.outputs import Classify
from vinedresser.columns.rows import copied, has_rows, is_frame, row_count
from vinedresser.columns.values import joined
from vinedresser.errors import ConfigError
from vinedresser.serving.recording.items import Item
from vinedresser.serving.wrappers.calls import Sink, watch_function

__all__ = ["describe_model", "watch"]


def watch(model: Any, recorder: Sink, *, layer: str | None = None) -> Any:
    """Record every call of a model; its outputs stay the same.

    Args:
        model: a torch module; a Keras model; or a function, such as ``model.predict`` of a model of
            scikit-learn, XGBoost or MLflow, which may be a coroutine function.
        recorder: a `RequestRecorder`.
        layer: name of a layer whose output is recorded as the column "embedding", for torch modules
            and Keras models. It is taken from the same forward pass.

    Returns:
        For a torch module, an object with `close`, which removes the hooks; call the module as
        before. For a Keras model, an object to call in place of the model, with `predict`,
        `predict_on_batch` and `close`. For a function, the function to call in its place.

    Raises:
        ConfigError: the model cannot be watched, or there is no such layer.
    """
    torch, keras = sys.modules.get("torch"), sys.modules.get("keras")
    if torch is not None and isinstance(model, torch.nn.Module):
        from vinedresser.serving.wrappers.torch_ import TorchWatch

        return TorchWatch(model, recorder, layer)
    if keras is not None and isinstance(model, keras.Model):
        from vinedresser.serving.wrappers.keras_ import KerasWatch

        return KerasWatch(model, recorder, layer)
    if not callable(model):
        hint = "; pass its method predict" if hasattr(model, "predict") else ""
        raise ConfigError(f"a {type(model).__name__} cannot be called{hint}")
    if layer is not None:
        raise ConfigError("layer: only torch modules and Keras models have layers")
    return watch_function(model, recorder)


def describe_model(
    model: Any,
    inputs: Any,
    *,
    layer: str | None = None,
    features: Sequence[str] | None = None,
    classify: Classify | None = None,
    batch_size: int = 256,
) -> dict[str, NDArray[Any]]:
    """Return the columns that describe a sample, such as a baseline, and the answers of a model.

    They are those that a `RequestRecorder` writes for the same inputs. A torch module is called in
    evaluation mode and without gradients.

    Args:
        model: see `watch`.
        inputs: the sample: an array, tensor or DataFrame [rows, ...], a mapping of arrays, a list.
        layer: see `watch`.
        features: see `describe`.
        classify: see `describe`.
        batch_size: number of rows that the model gets at a time.

    Raises:
        ConfigError: the sample is empty, or see `watch` and `describe`.
    """
    count = row_count(inputs)
    if not count:
        raise ConfigError("the sample has no rows")
    described = _Description(features, classify)
    watched = watch(model, described, layer=layer)
    try:
        with _evaluating(model):
            for first in range(0, count, batch_size):
                rows = range(first, min(first + batch_size, count))
                watched(_slice(inputs, rows))
    finally:
        if hasattr(watched, "close"):
            watched.close()
    names = dict.fromkeys(name for columns in described.pieces for name in columns)
    return {
        name: joined([piece.get(name) for piece in described.pieces], described.counts)
        for name in names
    }


class _Description:
    """Describes the calls of a model."""

    def __init__(self, features: Sequence[str] | None, classify: Classify | None) -> None:
        self.pieces: list[dict[str, NDArray[Any]]] = []
        self.counts: list[int] = []
        self._features = features
        self._classify = classify

    def begin(self, inputs: Any, ids: object = None) -> Item | None:  # noqa: ARG002 (see `Sink`)
        return Item([], 0.0, 1.0, copied(inputs, None))

    def finish(self, item: Item, outputs: Any, embedding: Any = None) -> None:
        self.counts.append(row_count(item.inputs))
        self.pieces.append(
            describe(item.inputs, outputs, self._features, embedding, classify=self._classify)
        )


def _slice(value: Any, rows: range) -> Any:
    part = slice(rows.start, rows.stop)
    if is_frame(value):
        return value.iloc[part]
    if isinstance(value, dict):
        return {name: one[part] if has_rows(one) else one for name, one in value.items()}
    return value[part]


def _evaluating(model: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return nullcontext()
    from vinedresser.serving.wrappers.torch_ import evaluating

    return evaluating(model)
