"""What is told to others of a finding: a JSON document, and a text."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from vinedresser.rules.findings_file import finding_line
from vinedresser.store.finding import Finding
from vinedresser.store.records import RunRecord
from vinedresser.store.records.json_fields import strict_json

__all__ = ["action_id", "document", "text"]


def action_id(run_id: str, finding: Finding, action: str) -> str:
    """Return 32 hexadecimal digits for an action that is taken for a finding of a run.

    A judge that is started again finds the same and so gets the same: who is told twice can tell.
    """
    same = (run_id, finding.rule, finding.step, finding.mode, finding.rank, finding.tensor, action)
    return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:32]


def document(run: RunRecord, location: str, finding: Finding, identity: str) -> dict[str, Any]:
    """Return what a server or a program is told, as JSON of the standard.

    Args:
        run: whose finding it is.
        location: of the run.
        finding: what was found; NaN and infinities become text.
        identity: see `action_id`.

    Returns:
        ``id``, ``time``, ``text``, ``finding``, and under ``run`` what the run is.
    """
    facts = {
        "id": run.id,
        "name": run.name,
        "location": location,
        "created": run.created,
        "framework": run.framework,
        "parameters": run.parameters,
        "total_steps": run.total_steps,
        "flow": run.flow,
    }
    found: dict[str, Any] = {
        "id": identity,
        "time": time.time(),
        "text": f"{run.name}: {finding.rule} ({finding.severity}) at step {finding.step}: "
        + finding.seen,
        "finding": json.loads(finding_line(finding)),
        "run": facts,
    }
    return {key: strict_json(value) for key, value in found.items()}


def text(told: dict[str, Any]) -> str:
    """Return a document in words, for a person.

    Args:
        told: see `document`.
    """
    finding, run = told["finding"], told["run"]
    lines = {
        "Run": f"{run['name']} ({run['location']})",
        "Rule": f"{finding['rule']} ({finding['severity']})",
        "Step": f"{finding['step']}, seen since {finding['since']}",
        "Seen": finding["seen"],
        "Cause": finding["cause"],
        "Try": finding["remedy"],
        "Sure": f"{finding['confidence']:.0%}",
    }
    return "\n".join(f"{key + ':':7}{value}" for key, value in lines.items()) + "\n"
