"""The content of notifications: a JSON document, and a text."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from vinedresser.rules.findings_file import finding_line
from vinedresser.store.finding import Finding
from vinedresser.store.json_values import strict_json
from vinedresser.store.records import RunRecord

__all__ = ["action_id", "document", "text"]


def action_id(run_id: str, finding: Finding, action: str) -> str:
    """Return an identifier of 32 hexadecimal digits for an action for a finding of a run.

    A restarted judge computes the same one, so that receivers can recognise duplicates.
    """
    same = (run_id, finding.rule, finding.step, finding.mode, finding.rank, finding.tensor, action)
    return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:32]


def document(run: RunRecord, location: str, finding: Finding, identity: str) -> dict[str, Any]:
    """Return the content for a server or a program, as standard JSON.

    Args:
        run: record of the run.
        location: location of the run.
        finding: the finding; NaN and infinities become strings.
        identity: see `action_id`.

    Returns:
        A document with ``id``, ``time``, ``text``, ``finding`` and ``run``.
    """
    described = {
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
        "run": described,
    }
    return {key: strict_json(value) for key, value in found.items()}


def text(content: dict[str, Any]) -> str:
    """Return a document as text, for a person.

    Args:
        content: see `document`.
    """
    finding, run = content["finding"], content["run"]
    lines = {
        "Run": f"{run['name']} ({run['location']})",
        "Rule": f"{finding['rule']} ({finding['severity']})",
        "Step": f"{finding['step']}, seen since {finding['since']}",
        "Seen": finding["seen"],
        "Cause": finding["cause"],
        "Try": finding["remedy"],
        "Confidence": f"{finding['confidence']:.0%}",
    }
    return "\n".join(f"{key + ':':12}{value}" for key, value in lines.items()) + "\n"
