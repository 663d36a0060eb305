"""docs/run_directory.md describes the run directory as the code has it, field by field."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import pytest

from tests.paths import ROOT
from vinedresser.rules.causes.suspicions import SuspicionRecord
from vinedresser.store.finding import Finding
from vinedresser.store.index.codec import decode_record
from vinedresser.store.index.layout import LayoutPool
from vinedresser.store.records import (
    ActionRecord,
    CaptureChange,
    CaptureRequest,
    ChecksRecord,
    FedRecord,
    Heartbeat,
    HostReport,
    Record,
    TagsRecord,
    TrainerAnswer,
    TrainerRequest,
    actions_key,
    checks_key,
    fed_key,
    findings_key,
    heartbeat_key,
    host_key,
    suspicions_key,
    tags_key,
)

DOCUMENT = ROOT.joinpath("docs/run_directory.md").read_text(encoding="utf-8")
# Those of which a run has several; the others lie under their one key.
NUMBERED = {
    *(Heartbeat, HostReport, FedRecord, CaptureRequest, CaptureChange, Finding),
    *(ActionRecord, ChecksRecord, TagsRecord, TrainerRequest, TrainerAnswer, SuspicionRecord),
}
RECORDS: dict[str, Any] = {
    **{
        kind.KEY: kind
        for kind in Record.__subclasses__()
        # Other packages have records of their own, outside run directories; a base has no key.
        if kind not in NUMBERED and kind.__module__.startswith("vinedresser.store.")
        if hasattr(kind, "KEY")
    },
    "capture_requests/<number>.json": CaptureRequest,
    "capture_changes/<rank>/<number>.json": CaptureChange,
    heartbeat_key(0).replace("0", "<rank>"): Heartbeat,
    fed_key(0).replace("0", "<rank>"): FedRecord,
    host_key(0).replace("0", "<number>"): HostReport,
    "trainer_requests/<number>.json": TrainerRequest,
    "trainer_answers/<rank>/<number>.json": TrainerAnswer,
    findings_key("<group>"): Finding,
    actions_key("<group>"): ActionRecord,
    checks_key("<group>"): ChecksRecord,
    tags_key("<group>"): TagsRecord,
    suspicions_key("<group>"): SuspicionRecord,
}


@pytest.mark.parametrize("key", RECORDS)
def test_every_field_of_a_record_is_described(key: str) -> None:
    section = DOCUMENT.partition(f"\n#### `{key}`\n")[2].partition("\n#")[0]
    described = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    assert described == [entry.name for entry in fields(RECORDS[key])]


def test_every_record_is_in_the_table_of_the_run_directory() -> None:
    for key in RECORDS:
        assert f"\n| `{key}` |" in DOCUMENT


def test_the_index_record_shown_is_one() -> None:
    shown = json.loads(DOCUMENT.partition("```json\n")[2].partition("```")[0])
    content = json.dumps(shown, separators=(",", ":")).encode()
    record = decode_record(content, LayoutPool(), rank=0, seq=3)
    assert record.rows.letters() == "ttte"
    assert [name for group in record.tensors for name in group.layout.names] == [
        "weights/a",
        "weights/b",
    ]
