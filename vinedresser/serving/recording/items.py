"""Requests on their way from the caller to the worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vinedresser.columns.rows import Parts, host_array, parts_of, row_count, size_of

__all__ = ["Batch", "HostItem", "Item", "batches", "host_item"]

# Bytes of a call, such as an image, above which joining it with others costs more than it saves.
_LARGE = 1 << 16


@dataclass(slots=True)
class Item:
    """One call of the model.

    Attributes:
        ids: ids of its recorded requests, UTF-8.
        time: seconds since the epoch.
        probability: probability with which each of them was recorded.
        inputs: copies of the inputs of these requests.
        outputs: copies of the outputs; None before the model has answered.
        embedding: outputs of a layer, [requests, dimensions]; None if no layer is recorded.
        rows: positions of the requests in the call; None: all of them.
        read: returns the inputs and outputs of a call of which only the encoded messages are kept;
            it is called on the worker's thread. Such an item has one id, from which those of
            several requests are derived.
        size: approximate memory in bytes.
        timed: whether to measure the time that recording the call takes.
    """

    ids: list[bytes]
    time: float
    probability: float
    inputs: Any
    outputs: Any = None
    embedding: Any = None
    rows: list[int] | None = None
    read: Callable[[], tuple[Any, Any]] | None = None
    size: int = 0
    timed: bool = False

    def measure(self) -> None:
        """Set its size."""
        self.size = 256 + sum(map(size_of, (self.inputs, self.outputs, self.embedding)))


class Batch(NamedTuple):
    """Requests of several calls with inputs and outputs of the same form.

    Attributes:
        times: arrival of each; float64 [rows].
        probabilities: probability with which each was recorded; float64 [rows].
        inputs: inputs by name of the part.
        outputs: outputs, likewise; None if there are none.
        embedding: float32 [rows, dimensions] or None.
    """

    ids: list[bytes]
    times: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    inputs: Parts
    outputs: Parts | None
    embedding: NDArray[np.float32] | None


class HostItem(NamedTuple):
    """A call whose tensors are in host memory.

    Attributes:
        ids: ids of its requests.
        time: seconds since the epoch.
        probability: probability with which each was recorded.
        inputs: inputs by name of the part.
        outputs: outputs, likewise; None if there are none.
        embedding: [rows, dimensions] or None.
        form: names, dtypes and shapes; calls of the same form are joined. A large call has a form
            of its own.
    """

    ids: list[bytes]
    time: float
    probability: float
    inputs: Parts
    outputs: Parts | None
    embedding: NDArray[Any] | None
    form: tuple[Any, ...]


def host_item(item: Item) -> HostItem:
    """Bring a call into host memory.

    Raises:
        ValueError: inputs, outputs and ids have different numbers of rows.
    """
    given, answer, ids = item.inputs, item.outputs, item.ids
    if item.read is not None:
        given, answer = item.read()
        count = row_count(given)
        if count != 1:
            ids = [b"%s/%d" % (ids[0], row) for row in range(count)]
    inputs, form = _host_parts(given, len(ids), "inputs")
    outputs, outputs_form = None, None
    if answer is not None:
        outputs, outputs_form = _host_parts(answer, len(ids), "outputs")
    embedding = None if item.embedding is None else host_array(item.embedding)
    if embedding is not None and len(embedding) != len(ids):
        raise ValueError(f"{len(ids)} requests, but {len(embedding)} rows of the recorded layer")
    large = id(item) if item.size > _LARGE else None
    forms = form, outputs_form, None if embedding is None else embedding.shape[1:], large
    return HostItem(ids, item.time, item.probability, inputs, outputs, embedding, forms)


def batches(items: Iterable[HostItem]) -> list[Batch]:
    """Join the requests of calls whose inputs and outputs have the same form.

    Args:
        items: the calls, in the order of time.
    """
    groups: dict[Any, list[HostItem]] = defaultdict(list)
    for item in items:
        groups[item.form].append(item)
    return [_joined(group) for group in groups.values()]


def _host_parts(value: Any, count: int, what: str) -> tuple[Parts, tuple[Any, ...]]:
    """Return inputs or outputs by name of the part, and their form."""
    array = host_array(value) if hasattr(value, "detach") else value
    # Most models take and return one array: the time of this path is the interpreter's.
    if isinstance(array, np.ndarray) and array.ndim and len(array) == count:
        return {"": array}, (array.dtype, array.shape[1:])
    if (found := row_count(array)) != count:
        raise ValueError(f"{count} requests, but {what} of {found}")
    parts = {
        name: part if isinstance(part, list) else host_array(part)
        for name, part in parts_of(array).items()
    }
    form = (
        (name, None if isinstance(part, list) else (part.dtype, part.shape[1:]))
        for name, part in parts.items()
    )
    return parts, tuple(form)


def _joined(group: Sequence[HostItem]) -> Batch:
    counts = [len(one.ids) for one in group]
    embeddings = [one.embedding for one in group if one.embedding is not None]
    outputs = [one.outputs for one in group if one.outputs is not None]
    return Batch(
        [identity for one in group for identity in one.ids],
        np.repeat([one.time for one in group], counts),
        np.repeat([one.probability for one in group], counts),
        _parts([one.inputs for one in group]),
        _parts(outputs) if outputs else None,
        np.concatenate(embeddings) if embeddings else None,
    )


def _parts(several: Sequence[Parts]) -> Parts:
    if len(several) == 1:
        return several[0]
    return {
        name: [one for parts in several for one in parts[name]]
        if isinstance(part, list)
        else np.concatenate([parts[name] for parts in several])
        for name, part in several[0].items()
    }
