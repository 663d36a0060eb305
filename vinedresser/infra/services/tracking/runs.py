"""Creating the MLflow run of a run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from vinedresser.infra.catalog.tracking_uri import absolute_uri
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.services.tracking.metric_names import clean_key
from vinedresser.infra.services.tracking.patience import persist
from vinedresser.masking import masked_text, masked_value
from vinedresser.plain_text import visible

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = [
    "DIRECTORY_TAG",
    "NOTE_TAG",
    "PARENT_NAME_TAG",
    "RUN_TAG",
    "create_run",
    "directory_of",
    "in_batches",
    "text",
]

T = TypeVar("T")

# Identifies the MLflow run of a run whose creator died before noting the id.
RUN_TAG = "vinedresser.run_id"
# The location at which a run or sweep was made.
DIRECTORY_TAG = "vinedresser.directory"
# Name of the sweep or pruning that a run belongs to.
PARENT_NAME_TAG = "parent"
# MLflow's description of a run or experiment, in Markdown.
NOTE_TAG = "mlflow.note.content"

_MOST_PER_BATCH = 100
_LONGEST_VALUE = 5000
# Of MLflow's data sets: longest name, digits of their digests, and the tag for what they are for.
_LONGEST_NAME, _DIGITS = 500, 8
_CONTEXT_TAG = "mlflow.data.context"


def create_run(
    uri: str,
    experiment_id: str,
    name: str,
    parameters: Mapping[str, Any],
    tags: Mapping[str, Any],
    *,
    data: Mapping[str, Sequence[str]] | None = None,
    started: float | None = None,
    new: bool = False,
    timeout: float = 60.0,
) -> str:
    """Create an MLflow run, or return the one that was created before for the same run.

    Args:
        experiment_id: the result of `prepare_tracking`.
        name: display name.
        parameters: hyperparameters; nested values are written as JSON.
        tags: tags; `RUN_TAG` among them lets a second call find the run of the first.
        data: the sources of each channel of training data, such as ``{"train": ["s3://…"]}``,
            which become its data sets. Their contents are not read: the digest is of the address.
        started: start time in seconds since the epoch; None: now.
        new: no earlier call was made for the same run, so it need not be searched for, which takes
            longer the more runs there are.
        timeout: seconds to retry while the database is locked or the server unavailable.

    Returns:
        The id of the MLflow run, which is RUNNING.

    Raises:
        TrackingError: the server or its database refused or stayed unavailable.
    """
    uri = absolute_uri(uri)
    clean_tags = {clean_key(key): text(value) for key, value in tags.items()}

    start_time = None if started is None else round(started * 1000)

    attempts = itertools.count()

    def make() -> str:
        # An attempt that failed may have created it.
        search = next(attempts) > 0 or not new
        with connected(uri) as client:
            run_id = _find(client, experiment_id, clean_tags.get(RUN_TAG)) if search else None
            if run_id is None:
                run = client.create_run(experiment_id, start_time, clean_tags, visible(name))
                run_id = str(run.info.run_id)
            _set_parameters(client, run_id, parameters)
            _set_data(client, run_id, data or {})
            return run_id

    return persist(make, timeout)


def directory_of(
    uri: str, experiment_id: str, run_tag: str, *, timeout: float | None = 60.0
) -> str:
    """Return the location at which the run of an MLflow run was made; "" if there is none.

    Args:
        uri: tracking URI.
        run_tag: its `RUN_TAG`.
        timeout: seconds to retry while the database is locked or the server unavailable; None: it
            is called once.

    Raises:
        TrackingError: the server or its database refused or stayed unavailable.
    """
    uri = absolute_uri(uri)

    def look() -> str:
        with connected(uri) as client:
            run_id = _find(client, experiment_id, run_tag)
            return client.get_run(run_id).data.tags.get(DIRECTORY_TAG, "") if run_id else ""

    return look() if timeout is None else persist(look, timeout)


def _set_parameters(client: MlflowClient, run_id: str, parameters: Mapping[str, Any]) -> None:
    from mlflow.entities import Param

    entries = [
        Param(clean_key(key), text(masked_value(key, value))) for key, value in parameters.items()
    ]
    for batch in in_batches(entries):
        client.log_batch(run_id, params=batch)


def _set_data(client: MlflowClient, run_id: str, data: Mapping[str, Sequence[str]]) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    inputs = []
    for channel, sources in data.items():
        for source in sources:
            address = text(source)
            last = address.rstrip("/").rpartition("/")[2] or address
            digest = sha256(address.encode(errors="replace")).hexdigest()[:_DIGITS]
            kind = "s3" if address.startswith("s3://") else "local"
            dataset = Dataset(last[:_LONGEST_NAME], digest, kind, json.dumps({"uri": address}))
            inputs.append(DatasetInput(dataset, [InputTag(_CONTEXT_TAG, visible(channel))]))
    if inputs:
        client.log_inputs(run_id, inputs)


def in_batches(entries: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield parameters or tags in batches that MLflow accepts in one request."""
    for start in range(0, len(entries), _MOST_PER_BATCH):
        yield entries[start : start + _MOST_PER_BATCH]


def text(value: object) -> str:
    """Return a parameter or tag value as plain text without secrets, at most 5,000 characters."""
    if isinstance(value, Mapping | list | tuple):
        content = json.dumps(masked_value("", value), default=str)
    else:
        # Masked first: a visible control character ends in letters, which would join a token.
        content = visible(masked_text(str(value)), keep="\n\t")
    return content if len(content) <= _LONGEST_VALUE else content[: _LONGEST_VALUE - 1] + "…"


def _find(client: MlflowClient, experiment_id: str, run_tag: str | None) -> str | None:
    if not run_tag:
        return None
    quoted = run_tag.replace("'", "")
    found = client.search_runs([experiment_id], f"tags.`{RUN_TAG}` = '{quoted}'", max_results=1)
    return str(found[0].info.run_id) if found else None
