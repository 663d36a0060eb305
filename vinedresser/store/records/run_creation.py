"""Make the record of a new run."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from vinedresser.errors import ConfigError
from vinedresser.store.records.run_record import RunRecord

__all__ = ["new_run"]


def new_run(
    name: str, parameters: Mapping[str, Any] | None = None, *, as_text: bool = False
) -> RunRecord:
    """Return a record with a new id, created now; fill in the rest with `dataclasses.replace`.

    Args:
        name: display name of the run.
        parameters: hyperparameters by name.
        as_text: keep values that JSON cannot represent as text, as for the arguments of a script;
            False: refuse them, as for those of a file.

    Raises:
        ConfigError: the parameters are not a mapping, or a value has no JSON type.
    """
    if parameters is not None and not isinstance(parameters, Mapping):
        raise ConfigError(f"parameters: must be a mapping, not a {type(parameters).__name__}")
    plain = {str(key): _plain(key, value, as_text) for key, value in (parameters or {}).items()}
    return RunRecord(id=uuid.uuid4().hex, name=name, created=time.time(), parameters=plain)


def _plain(key: object, value: object, as_text: bool) -> Any:
    """Return a value as JSON types."""
    try:
        return json.loads(json.dumps(value, default=str if as_text else None))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"parameters.{key}: {value!r} has no JSON type; use numbers, strings, booleans, or "
            "lists and tables of them"
        ) from error
