"""Making the baseline of a monitor, in a process with the user's model.

The baseline has a bounded sample of the inputs, with which those of an alert are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as unpacked
from safetensors.numpy import save as packed

from vinedresser.columns.rows import host_array
from vinedresser.drift import Baseline
from vinedresser.errors import DriftError, KeyMissing, StoreError
from vinedresser.explain.alerts.matching import spread_sample
from vinedresser.explain.alerts.served_model import baseline_data, baseline_times, served_model
from vinedresser.explain.examples.explained import is_class
from vinedresser.explain.saliency.model_input import as_input
from vinedresser.objects import LocalStorage
from vinedresser.serving import describe, describe_model
from vinedresser.store.json_values import DAMAGE, parse_json

__all__ = ["InputSample", "main", "read_sample"]

_SAMPLE, _CLASSES = "inputs.safetensors", "inputs.json"
# Examples of the baseline for each one that is explained, to choose matching ones from.
_PER_EXAMPLE = 8
_MOST_BYTES = 64 * 2**20
# One input may be larger.
_MOST_READ = 1 << 30


class InputSample(NamedTuple):
    """Some inputs of the baseline.

    Attributes:
        inputs: [N, ...].
        predictions: predicted class of each; of a model that does not classify, all the same.
    """

    inputs: NDArray[Any]
    predictions: list[Any]


def main(
    *,
    model: dict[str, Any],
    data: str,
    rows: int,
    in_time_order: bool,
    period: float | None,
    times: str | None,
    examples: int,
    destination: str,
) -> None:
    """Write a baseline and a sample of its inputs to a folder.

    Args:
        model: table ``[model]`` of the monitor.
        data: ``module:function`` that returns the inputs.
        rows: the most of them that are used, the last ones.
        in_time_order: whether they are in the order of time.
        period: of a cycle, in seconds with `times`, otherwise in rows; None: it is looked for.
        times: ``module:function`` that returns when each input was a request; None: unknown.
        examples: number of examples to explain later.
        destination: folder to create.

    Raises:
        ConfigError: a function does not exist, or returns something else.
        DriftError: the inputs cannot be used.
    """
    inputs, labels = baseline_data(data)
    when = None if times is None else baseline_times(times, len(inputs))[-rows:]
    if isinstance(inputs, list):
        inputs = np.asarray(inputs)
    # The last ones, in their order, since neighbours may depend on each other.
    inputs = inputs[-rows:]
    told = {"features": model["features"], "classify": model["classify"]}
    if model["build"] is None:
        columns = describe(inputs, **told)
    else:
        served = served_model(model["build"], model["weights"])
        columns = describe_model(served, as_input(served, inputs), layer=model["layer"], **told)
    folder = Path(destination)
    predictions = columns.get("prediction")
    classifies = is_class(predictions)
    correct = None
    if labels is not None and predictions is not None and classifies:
        correct = predictions == host_array(labels)[-rows:]
    baseline = Baseline.of(
        columns,
        correct=correct,
        categories=("prediction",) if classifies else (),
        rows=rows,
        in_time_order=in_time_order,
        period=period,
        times=when,
    )
    baseline.save(folder)
    _write_sample(folder, inputs, columns, examples)


def _write_sample(
    folder: Path, inputs: Any, columns: Mapping[str, NDArray[Any]], examples: int
) -> None:
    array = inputs if isinstance(inputs, Mapping) else host_array(inputs)
    if isinstance(array, Mapping) or array.dtype.kind not in "biuf" or not len(array):
        # Records and texts have no saliency.
        return
    most = max(1, min(_PER_EXAMPLE * examples, _MOST_BYTES // max(array[0].nbytes, 1)))
    places = spread_sample(len(array), most)
    predictions = columns.get("prediction")
    classes = [0] * len(places) if predictions is None else predictions[places].tolist()
    storage = LocalStorage(folder)
    storage.put(_SAMPLE, [packed({"inputs": np.ascontiguousarray(array[places])})])
    storage.put(_CLASSES, [json.dumps(classes).encode()])


def read_sample(folder: Path) -> InputSample | None:
    """Read the sample of inputs of a baseline; None if it has none.

    Raises:
        DriftError: its files are damaged.
    """
    storage = LocalStorage(folder)
    try:
        content = storage.get(_SAMPLE, 0, _MOST_READ)
    except KeyMissing:
        return None
    except StoreError as error:
        raise DriftError(f"the sample of inputs cannot be read: {error}") from error
    try:
        # A copy, which is writable.
        inputs = np.array(unpacked(content)["inputs"])
        classes = parse_json(storage.get(_CLASSES, 0, _MOST_BYTES))
    except (StoreError, SafetensorError, *DAMAGE) as error:
        raise DriftError(f"{folder}: the sample of inputs cannot be read: {error}") from error
    if not isinstance(classes, list) or not inputs.ndim or len(classes) != len(inputs):
        raise DriftError(f"{folder}: the sample of inputs does not fit its predictions")
    return InputSample(inputs, classes)
