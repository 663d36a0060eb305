"""Tags of a run in MLflow: how it ended, the verdict, and what its rules set."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vinedresser.explain.formatting import count
from vinedresser.explain.verdicts import Verdict, verdict
from vinedresser.infra.services.tracking import NOTE_TAG
from vinedresser.objects import Storage
from vinedresser.plain_text import visible
from vinedresser.preflight.record import PreflightRecord
from vinedresser.store.finding import Finding
from vinedresser.store.liveness import read_record_or_none
from vinedresser.store.outputs import outputs_note
from vinedresser.store.reading.reader import Run
from vinedresser.store.records import (
    ExitRecord,
    TagsRecord,
    TrackingRecord,
    fed_records,
    known_keys,
    lost_records,
)

__all__ = ["description", "end_tags", "literal", "proof_tags", "rule_tags"]

_TRIED = "Tried: "
_PROOF = re.compile(rf"  \n{_TRIED}[^\n]*")


def end_tags(
    run: Run,
    end: ExitRecord,
    faults: Sequence[str] = (),
    tracking: TrackingRecord | None = None,
) -> dict[str, object]:
    """Return the tags by which runs that are over are filtered in MLflow's table.

    Args:
        faults: sentences about its damaged files that are known already.
        tracking: its MLflow run, to which the description links; None: no links.

    Raises:
        StoreError: the storage refused.
    """
    stop = end.stop
    damaged = [*faults]
    judged = verdict(run, damaged)
    status = judged.status
    rules = rule_tags(run.storage, damaged)
    fed = fed_records(run.storage)
    checked = read_record_or_none(run.storage, PreflightRecord, PreflightRecord.KEY, damaged)
    return {
        "exit.cause": end.cause,
        "exit.reason": end.reason,
        "exit.rank": end.rank,
        "steps": 0 if end.last_step is None else end.last_step + 1,
        "records.lost": lost_records(run.storage) or None,
        "data.objects": max((one.total("objects") for one in fed), default=None),
        "data.records": sum(one.total("records") for one in fed) if fed else None,
        "data.damaged": sum(one.total("damaged") for one in fed) if fed else None,
        "steps.saved": judged.saved,
        "stop.by": stop.by if stop else None,
        # A status without an exit record knows no rule, but the stop record does.
        "stop.rule": status.rule or (stop.rule if stop else "") or None,
        "stop.step": stop.step if stop else None,
        "stop.reason": status.reason if status.rule else stop.reason if stop else None,
        "findings": ", ".join(dict.fromkeys(found.rule for found in judged.findings)) or None,
        "controls": "\n".join(f"step {control.step}: {control.words}" for control in run.controls())
        or None,
        "preflight": checked.summary if checked else None,
        "outputs": outputs_note(run.storage, damaged) or None,
        **_verdict_tags(judged),
        NOTE_TAG: "\n\n".join([description(judged, tracking), *_suspicions(checked)]),
        "problems": "\n".join(dict.fromkeys((*damaged, *run.damage(status)))) or None,
        **rules,
    }


def proof_tags(run: Run, end: ExitRecord, tracking: TrackingRecord, note: str) -> dict[str, object]:
    """Return the tags that change if something was proved after the end of a run.

    Args:
        tracking: its MLflow run.
        note: its present description; one that the user has changed is kept.

    Raises:
        StoreError: the storage refused.
    """
    tags = end_tags(run, end, (), tracking)
    renewed = {"verdict.tried": tags.get("verdict.tried")}
    if _PROOF.sub("", note) == _PROOF.sub("", str(tags[NOTE_TAG])):
        renewed[NOTE_TAG] = tags[NOTE_TAG]
    return renewed


def _verdict_tags(judged: Verdict) -> dict[str, object]:
    """Return the verdict, and the finding that decides it in columns of MLflow's table."""
    finding = judged.finding
    tags: dict[str, object] = {"verdict": judged.words, "verdict.kind": judged.kind}
    if finding is not None:
        tags |= {
            "verdict.rule": finding.rule,
            "verdict.since": judged.since,
            "verdict.tensor": finding.tensor or None,
            "verdict.seen": finding.seen,
            "verdict.cause": finding.cause or None,
            "verdict.remedy": finding.remedy or None,
            "verdict.tried": judged.proof or None,
        }
    return tags


def description(judged: Verdict, tracking: TrackingRecord | None) -> str:
    """Return the head of the page of a run in Markdown: the verdict in words, then the findings.

    Args:
        tracking: its MLflow run, whose page shows the text and links the report; None: no links.
    """
    words = judged.words
    line = f"**{literal(words[0].upper() + words[1:])}**"
    if judged.kind == "healthy":
        line += f": {literal(judged.sentence)}"
    if judged.saved:
        line += f", {count(judged.saved, 'step')} saved"
    if tracking is not None and tracking.run_id:
        place = f"#/experiments/{tracking.experiment_id}/runs/{tracking.run_id}"
        line += f" · [report]({place}/artifacts/report.html)"
    notes = [
        note
        for root, remedy in zip(judged.causes, judged.remedies, strict=True)
        for note in (
            _note(root.finding, remedy, judged.proof if root.finding is judged.finding else ""),
            *(_symptom(symptom) for symptom in root.symptoms),
        )
    ]
    return "\n\n".join([line, *notes])


def _suspicions(checked: PreflightRecord | None) -> list[str]:
    """Return what the checks before the run found suspicious, a paragraph of Markdown each."""
    return [
        f"**{literal(one.check)}** suspicious before the training: {literal(one.evidence)}"
        for one in (checked.suspicious if checked is not None else ())
    ]


def _symptom(finding: Finding) -> str:
    """Return a symptom as a paragraph of Markdown, below its root cause."""
    return f"Symptom: **{literal(finding.rule)}** at step {finding.step}: {literal(finding.seen)}"


def _note(finding: Finding, remedy: str, proof: str) -> str:
    """Return a root cause as a paragraph of Markdown for the head of MLflow's page."""
    tried = f"  \n{_TRIED}{literal(proof)}" if proof else ""
    return (
        f"**{literal(finding.rule)}** at step {finding.step}: {literal(finding.seen)}  \n"
        f"Likely cause: {literal(finding.cause)}  \nTry: {literal(remedy)}{tried}"
    )


def literal(text: str) -> str:
    """Return text of a run, such as the name of a tensor, so that Markdown shows it unchanged."""
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", visible(text))


def rule_tags(storage: Storage, faults: list[str]) -> dict[str, str]:
    """Return the tags of a run by their names in MLflow.

    Args:
        faults: receives a sentence for each damaged record.

    Raises:
        StoreError: the storage refused a request.
    """
    found: dict[str, str] = {}
    for key in known_keys(storage, TagsRecord.KEY, faults):
        record = read_record_or_none(storage, TagsRecord, key, faults)
        found |= record.tags if record else {}
    return {f"vinedresser.tag.{rule}": text for rule, text in found.items()}
