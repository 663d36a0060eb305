"""Changes of running trainings that are asked for on their pages."""

from __future__ import annotations

import math
import socket
import time
import uuid
from collections.abc import Mapping
from typing import Any

from vinedresser.capture.requests.requesting import answer_words, await_trainer, request_trainer
from vinedresser.errors import ConfigError, did_you_mean
from vinedresser.infra.supervise.launcher.stopping import request_stop
from vinedresser.objects import Storage
from vinedresser.store.records import SupervisorRecord, TrainerRequest, TrainerRequestKind
from vinedresser.store.status import run_status

__all__ = ["FIELDS", "control"]

FIELDS = ("kind", "parameter", "value")
"""Fields of a request for a change; others are ignored."""
# What pages offer; the rest needs files or is for the command line.
_KINDS: tuple[TrainerRequestKind, ...] = ("stop", "checkpoint", "pause", "resume", "adjust")
# Seconds that a request waits for the answer of the training.
_PATIENCE = 5.0


def control(storage: Storage, fields: Mapping[str, str], person: str) -> str:
    """Ask a training to change; return what it has done, or that it was asked.

    Args:
        fields: ``kind``, and of an adjustment ``parameter`` and ``value``.
        person: who asks, for the records of the run.

    Raises:
        ConfigError: a field is wrong, the run is over, or the training refuses.
        NotARun: the run was removed.
        StoreError: the storage failed.
    """
    asked = fields.get("kind", "")
    kind = next((one for one in _KINDS if one == asked), None)
    if kind is None:
        hint = did_you_mean(asked, _KINDS) or f"; the kinds are {', '.join(_KINDS)}"
        raise ConfigError(f"kind: no such change {asked!r}{hint}")
    reason = f"vinedresser watch: {kind}, {person} on {socket.gethostname()}"
    if kind == "stop" and storage.exists(SupervisorRecord.KEY):
        record = None
        if not run_status(storage).over:
            record = request_stop(storage.location, by="person", reason=reason)
        if record is None:
            raise ConfigError(f"the run is {run_status(storage).state}, not running")
        return "stop requested; the training saves a checkpoint first"
    more = _adjustment(fields) if kind == "adjust" else {}
    request = TrainerRequest(uuid.uuid4().hex, kind, reason, time.time(), **more)
    answer = await_trainer(storage, request_trainer(storage, request), _PATIENCE)
    if answer is None and (status := run_status(storage)).over:
        raise ConfigError(f"the run is {status.words}; it has not answered")
    if answer is not None and answer.refused:
        raise ConfigError(f"refused: {answer.refused}")
    return answer_words(request, answer)


def _adjustment(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a request for another value of a parameter."""
    parameter = fields.get("parameter", "")
    try:
        value = float(fields.get("value", ""))
    except ValueError:
        value = math.nan
    if not parameter or not math.isfinite(value):
        raise ConfigError("adjust: give a parameter and its value, a number, such as lr=0.01")
    return {"parameter": parameter, "value": value}
