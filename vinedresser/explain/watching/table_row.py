"""A run in the table of a store: status, verdict, findings, settings and last values, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from vinedresser.explain.comparison.compared_run import ComparedRun
from vinedresser.explain.comparison.ranking import configuration_key
from vinedresser.explain.formatting import shortened
from vinedresser.explain.verdicts import verdict
from vinedresser.plain_text import visible
from vinedresser.store.finding import Finding
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import MachineRecord, TagsRecord, known_keys
from vinedresser.store.run_settings import environment_of, observed_of, parameters_of

__all__ = ["FoundByRule", "Row", "damaged_row", "json_number", "run_row"]

_LONGEST_NAME = 120
_LONGEST_REASON = 400
_LONGEST_VALUE = 200
# Of one run; a row has to stay small, whatever a script logs.
_MOST_SETTINGS = 300
_MOST_RESULTS = 100
_MOST_RULES = 60
# Integers that JavaScript's numbers have exactly.
_EXACT = 2**53
_SEVERITIES = ("stop", "warning", "info")

# A value in a cell; numbers that are not finite are text.
_Plain = str | int | float | bool


@dataclass(frozen=True)
class FoundByRule:
    """What a rule found in a run: the most severe of its findings.

    Attributes:
        rule: name of the rule.
        severity: "stop", "warning" or "info".
        step: step at which it fired.
        since: first step with the symptom.
        seen: what it saw.
        cause: whether one of them is a root cause, whose marks are drawn on curves.
    """

    rule: str
    severity: str
    step: int
    since: int
    seen: str
    cause: bool


@dataclass(frozen=True)
class Row:
    """A run in the table.

    Attributes:
        name: name of the run in its store.
        state: its state; "unreadable" if it cannot be read.
        tone: colour of its verdict.
        words: how it ended and what is wrong, in a few words.
        kind: see `Verdict.kind`; "unreadable" if it cannot be read.
        steps: number of optimizer steps done.
        total: number of optimizer steps of the whole run; None if unknown.
        reason: what the finding that decides the verdict saw, why the run ended, or what the
            absence of findings rests on.
        rule: the rule of that finding; "" without one.
        cause: its likely cause.
        created: seconds since the epoch; None if unknown.
        seconds: duration; None if it is not over or unknown.
        tags: values that rules have set, by name of the rule.
        findings: what each rule found, the most severe first.
        parameters: hyperparameters by name.
        observed: settings that the hook has seen, by name.
        environment: program, code, versions and machine, by name.
        results: last value of each loss and metric, by its name in MLflow.
        configuration: a word that is the same for runs that differ by their seeds at most.
    """

    name: str
    state: str
    tone: str
    words: str
    kind: str
    steps: int = 0
    total: int | None = None
    reason: str = ""
    rule: str = ""
    cause: str = ""
    created: float | None = None
    seconds: float | None = None
    tags: Mapping[str, _Plain] = field(default_factory=dict)
    findings: Sequence[FoundByRule] = ()
    parameters: Mapping[str, _Plain] = field(default_factory=dict)
    observed: Mapping[str, _Plain] = field(default_factory=dict)
    environment: Mapping[str, _Plain] = field(default_factory=dict)
    results: Mapping[str, float] = field(default_factory=dict)
    configuration: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return what the page gets: plain JSON, in which text has no control characters."""
        found = asdict(self)
        found["link"] = f"/run/{quote(self.name, safe='', errors='replace')}"
        found["name"] = visible(shortened(self.name, _LONGEST_NAME))
        found["results"] = {name: json_number(one) for name, one in self.results.items()}
        return found


def run_row(name: str, run: Run) -> Row:
    """Return a run's row, as of its last refresh.

    Args:
        name: name of the run in its store.

    Raises:
        NotARun: it was removed.
        StoreError: the storage refused.
    """
    judged = verdict(run)
    compared = ComparedRun(name, run, judged)
    status, finding, info = judged.status, judged.finding, run.info
    reason = f"{finding.rule}: {judged.sentence}" if finding else judged.sentence
    key, results = configuration_key(compared.configuration), [*compared.results.items()]
    return Row(
        name=name,
        state=status.state,
        tone=judged.tone,
        words=_text(status.words if status.state == "stopped" else judged.headline),
        kind=judged.kind,
        steps=judged.steps,
        total=judged.total,
        reason=_text(reason, _LONGEST_REASON),
        rule=_text(finding.rule) if finding else "",
        cause=_text(finding.cause, _LONGEST_REASON) if finding else "",
        created=info.created,
        seconds=None if status.ended is None else max(0.0, status.ended - info.created),
        tags=_plain(_tags(run)),
        findings=_found(judged.findings, {root.finding.rule for root in judged.causes}),
        parameters=_plain(parameters_of(info)),
        observed=_plain(observed_of(info)),
        environment=_plain(environment_of(info) | _machine(run)),
        results={visible(one): value for one, value in results[:_MOST_RESULTS]},
        configuration=_digest(key)[:16],
    )


def damaged_row(name: str, problem: str) -> Row:
    """Return the row of a run that cannot be read."""
    words = "unreadable"
    return Row(name, words, "bad", words, words, reason=_text(problem, _LONGEST_REASON))


def json_number(value: float) -> float | str:
    """Return a number as JSON has it: those that are not finite are "NaN", "Infinity", …."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _machine(run: Run) -> dict[str, Any]:
    machine = read_record_or_none(run.storage, MachineRecord, MachineRecord.KEY, [])
    if machine is None:
        return {}
    return {"host": machine.host, "user": machine.user, "gpus": ", ".join(machine.gpus) or None}


def _tags(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in known_keys(run.storage, TagsRecord.KEY, []):
        record = read_record_or_none(run.storage, TagsRecord, key, [])
        found |= {} if record is None else record.tags
    return found


def _found(findings: Sequence[Finding], causes: Collection[str]) -> list[FoundByRule]:
    worst: dict[str, Finding] = {}
    for finding in findings:
        before = worst.setdefault(finding.rule, finding)
        if _SEVERITIES.index(finding.severity) < _SEVERITIES.index(before.severity):
            worst[finding.rule] = finding
    ordered = sorted(worst.values(), key=lambda one: (_SEVERITIES.index(one.severity), one.step))
    return [
        FoundByRule(
            rule=_text(one.rule),
            severity=one.severity,
            step=one.step,
            since=one.since,
            seen=_text(one.seen, _LONGEST_REASON),
            cause=one.rule in causes,
        )
        for one in ordered[:_MOST_RULES]
    ]


def _plain(settings: Mapping[str, Any]) -> dict[str, _Plain]:
    """Return settings as values of cells; those that are None are left out."""
    known = [(name, value) for name, value in settings.items() if value is not None]
    return {_text(str(name)): _cell(value) for name, value in known[:_MOST_SETTINGS]}


def _cell(value: object) -> _Plain:
    """Return a setting as the value of a cell; two that differ have different cells."""
    match value:
        case bool():
            return value
        case int() if abs(value) <= _EXACT:
            return value
        case float():
            return json_number(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= _LONGEST_VALUE:
        return visible(text)
    return f"{_text(text)} {_digest(text)[:8]}"


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()


def _text(text: str, most: int = _LONGEST_VALUE) -> str:
    return visible(shortened(text, most))
