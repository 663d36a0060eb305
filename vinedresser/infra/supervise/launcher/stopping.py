"""Ask a run to end."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from vinedresser.errors import NotARun
from vinedresser.objects import open_storage
from vinedresser.store.records import ExitRecord, RunRecord, StopBy, StopRecord, write_first


def request_stop(
    directory: str | os.PathLike[str],
    *,
    by: StopBy = "person",
    reason: str,
    rule: str = "",
    step: int | None = None,
    finding: Mapping[str, Any] | None = None,
) -> StopRecord | None:
    """Ask a run to end; the first request counts.

    Args:
        directory: the run directory, or the URL of a run on an object store.
        by: "rule", "sweep" (it is worse than other trials), "person", "owner" or
            "limit".
        reason: one sentence.
        rule: name of the rule.
        step: step of the finding.
        finding: the finding as JSON.

    Returns:
        The record in force, which may be an earlier one; None if the run has already ended.

    Raises:
        NotARun: there is no run.
        CorruptData: a record cannot be read.
        StoreError: the store refused a request.
    """
    storage = open_storage(directory)
    if not storage.exists(RunRecord.KEY):
        raise NotARun(f"{directory}: not a run; it has no {RunRecord.KEY}")
    if storage.exists(ExitRecord.KEY):
        return None
    return write_first(
        storage,
        StopRecord(
            by=by,
            reason=reason,
            time=time.time(),
            rule=rule,
            step=step,
            finding=dict(finding) if finding is not None else None,
        ),
    )
