"""The content of notifications: a JSON document, and a text."""

from __future__ import annotations

import hashlib
import json
import time
from string import Template
from typing import Any, Literal

from vinedresser.errors import did_you_mean
from vinedresser.rules.causes.root_cause import RootCause
from vinedresser.rules.findings_file import finding_line
from vinedresser.store.finding import Finding
from vinedresser.store.json_values import strict_json
from vinedresser.store.records import RunRecord

__all__ = [
    "MessageKind",
    "action_id",
    "check_template",
    "document",
    "filled",
    "headline",
    "message_id",
    "text",
]

# What stands for a value in a template: of the finding, and of the message and its run.
_OF_FINDING = ("rule", "severity", "step", "since", "seen", "cause", "remedy", "tensor")
_PLACEHOLDERS = ("run", "location", "parameters", "kind", *_OF_FINDING, "findings", "text")

# "problem": a new root cause; "again": more findings of a known one; "recovered": it is over.
MessageKind = Literal["problem", "again", "recovered"]


def action_id(run_id: str, finding: Finding, action: str) -> str:
    """Return an identifier of 32 hexadecimal digits for an action for a finding of a run.

    A restarted judge computes the same one, so that receivers can recognise duplicates.
    """
    same = (run_id, finding.rule, finding.step, finding.mode, finding.rank, finding.tensor, action)
    return hashlib.sha256(json.dumps(same).encode()).hexdigest()[:32]


def message_id(run_id: str, *parts: object) -> str:
    """Return an identifier of 32 hexadecimal digits for a message about a run.

    Args:
        run_id: id of the run, sweep or monitor.
        *parts: what tells the message from others, as JSON types.
    """
    return hashlib.sha256(json.dumps((run_id, "message", *parts)).encode()).hexdigest()[:32]


def document(
    run: RunRecord,
    location: str,
    cause: RootCause,
    identity: str,
    *,
    kind: MessageKind = "problem",
    said: str = "",
    findings: int = 1,
    template: str = "",
) -> dict[str, Any]:
    """Return the content for a server or a program, as standard JSON.

    Args:
        cause: root cause that it is about, and its symptoms; NaN and infinities become strings.
        identity: see `action_id` and `message_id`.
        kind: what it says of the root cause.
        said: a clause that replaces what the root cause has seen; "" for none.
        findings: number of findings of the root cause and its symptoms.
        template: the user's own text; "": the usual one; see `filled`.

    Returns:
        A document with ``id``, ``time``, ``kind``, ``text`` and ``facts`` for a person,
        ``finding``, ``symptoms``, ``findings`` and ``run``.
    """
    finding = cause.finding
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
    word = "" if kind == "problem" else f" {kind}:"
    severity = f" ({finding.severity})" if kind != "recovered" else ""
    found: dict[str, Any] = {
        "id": identity,
        "time": time.time(),
        "kind": kind,
        "text": f"{run.name}:{word} {finding.rule}{severity} at step {finding.step}: "
        + (said or finding.seen),
        "facts": _facts(run, location, cause, findings, said),
        "finding": json.loads(finding_line(finding)),
        "symptoms": [json.loads(finding_line(one)) for one in cause.symptoms],
        "findings": findings,
        "run": described,
    }
    content = {key: strict_json(value) for key, value in found.items()}
    return content | {"text": filled(template, content)} if template else content


def check_template(template: str) -> None:
    """Check a text of the user's that replaces the text of messages; see `filled`.

    Raises:
        ValueError: it has a placeholder that nothing is known of, or a lone ``$``.
    """
    wanted = Template(template)
    if not wanted.is_valid():
        raise ValueError("a $ must begin a placeholder, such as $run; for the sign itself write $$")
    for name in wanted.get_identifiers():
        if name not in _PLACEHOLDERS:
            near = did_you_mean(name, _PLACEHOLDERS) or f"; known: {', '.join(_PLACEHOLDERS)}"
            raise ValueError(f"no such placeholder ${name}{near}")


def filled(template: str, content: dict[str, Any]) -> str:
    """Return a template with the values of a message, which are not interpreted.

    Args:
        template: a text with placeholders as of `string.Template`; see `check_template`.
        content: a document about a run.
    """
    run, finding = content["run"], content["finding"]
    parameters = ", ".join(f"{name}={value}" for name, value in run["parameters"].items())
    values = {name: finding[name] for name in _OF_FINDING}
    values |= {"run": run["name"], "location": run["location"], "parameters": parameters}
    values |= {name: content[name] for name in ("kind", "findings", "text")}
    return Template(template).substitute(values)


def headline(content: dict[str, Any]) -> str:
    """Return the text of a document in one line."""
    return " ".join(str(content["text"]).split())


def text(content: dict[str, Any]) -> str:
    """Return a document as text, for a person.

    Args:
        content: a document with ``facts``; see `document`.
    """
    facts = [(f"{key}:", fact) for key, fact in content["facts"].items() if fact]
    return "".join(f"{key:12}{fact}\n" for key, fact in facts)


def _facts(
    run: RunRecord, location: str, cause: RootCause, findings: int, said: str
) -> dict[str, str]:
    """Return what a person wants to know, by headings."""
    finding = cause.finding
    facts = {"Run": f"{run.name} ({location})"}
    if said:
        facts["Recovered"] = said
    facts |= {
        "Rule": f"{finding.rule} ({finding.severity})",
        "Step": f"{finding.step}, seen since {finding.since}",
        "Seen": finding.seen,
        "Cause": finding.cause,
        "Try": finding.remedy,
        "Confidence": f"{finding.confidence:.0%}",
    }
    if cause.symptoms:
        facts["Symptoms"] = "; ".join(f"{one.rule}: {one.seen}" for one in cause.symptoms)
    if findings > 1 + len(cause.symptoms):
        facts["Findings"] = f"{findings} so far"
    return facts
