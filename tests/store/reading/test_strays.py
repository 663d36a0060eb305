"""Names in a run directory that its contract does not know are reported, and ignored otherwise."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import (
    CaptureRequest,
    actions_key,
    capture_change_key,
    capture_request_key,
    checks_key,
    findings_key,
    suspicions_key,
    tags_key,
    trainer_answer_key,
    trainer_request_key,
    write_numbered,
)
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, start_run, step_record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with three index records."""
    run = tmp_path / "run"
    start_run(run)
    writer = RunWriter(LocalStorage(run))
    for step in range(3):
        writer.add(step_record(step, scalars={"losses/loss": float(step)}))
        writer.flush()
    writer.close()
    end_run(run)
    return run


# Editors, interrupted copies, other numbers of digits, other ranks, and other alphabets.
STRAYS = (
    "000000000001.json~",
    "000000000003.json~",
    "000000000003.json.6eF3a2C1",
    ".000000000003.json.6eF3a2C1",
    "5.json",
    "0000000000003.json",
    "00000000003.json",
    "000000000003",
    "000000000003.JSON",
    "٠٠٠٠٠٠٠٠٠٠٠٣.json",
    "000000000003.json/000000000003.json",
)


@pytest.mark.parametrize("name", STRAYS)
def test_a_stray_name_among_index_records_is_named_and_ignored(folder: Path, name: str) -> None:
    stray = folder / "index" / "0" / name
    stray.parent.mkdir(exist_ok=True)
    shutil.copy(folder / "index" / "0" / "000000000002.json", stray)
    run = open_run(folder)
    assert run.steps().tolist() == [0, 1, 2]
    key = stray.relative_to(folder)
    assert run.damage(run.status) == [f"{folder}/{key}: not the name of an index record; ignored"]
    assert [step.step for step in open_run(folder).follow()] == [0, 1, 2]


def test_every_folder_of_the_contract_names_its_strays(folder: Path) -> None:
    known = {
        "segments/0/000000000007.safetensors": "segments/0/7.safetensors",
        "index/0/000000000000.json": "index/0/000000000000.json~",
        "manifests/0/000000000000.json": "manifests/00/000000000000.json",
        "heartbeat/0.json": "heartbeat/00.json",
        capture_request_key(0): "capture_requests/0.json",
        capture_change_key(0, 1): "capture_changes/000000.json",
        trainer_request_key(0): "trainer_requests/000000.txt",
        trainer_answer_key(0, 1): "trainer_answers/000000.json",
        findings_key("default"): "findings/default.jsonl~",
        checks_key("default"): "checks/default.jsonl",
        suspicions_key("default"): "suspicions/default.jsonl",
        actions_key("default"): "actions/.default.jsonl.swp",
        tags_key("default"): "tags/inner/default.json",
    }
    storage = LocalStorage(folder)
    for key in known:
        if not storage.exists(key):
            storage.put(key, [b""])
    # Files elsewhere are the user's own.
    for key in ("notes.txt", "rules/notes.txt", "checkpoints/5.pt", "plots/1.png"):
        storage.put(key, [b""])
    run = open_run(folder)
    assert run.damage(run.status) == []
    for stray in known.values():
        storage.put(stray, [b""])
    found = {one.partition(": ")[0].removeprefix(f"{folder}/") for one in run.damage(run.status)}
    assert found == {*known.values()}


def test_a_stray_name_that_no_terminal_can_show_is_escaped(folder: Path) -> None:
    for name in (b"\xff.json", b"\x1b[2J\n.json"):
        (folder / "index" / "0" / os.fsdecode(name)).write_bytes(b"{}")
    run = open_run(folder)
    assert run.steps().tolist() == [0, 1, 2]
    assert run.damage(run.status) == [
        f"{folder}/index/0/{said}: not the name of an index record; ignored"
        for said in (r"\x1b[2J\n.json", r"\udcff.json")
    ]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("kind", ["FIFO", "link", "dangling link", "folder"])
def test_something_else_under_the_name_of_a_record_is_damage(
    folder: Path, number: int, kind: str
) -> None:
    path = folder / "index" / "0" / f"{number:012d}.json"
    path.unlink(missing_ok=True)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        (path / "inner").mkdir(parents=True)
    else:
        path.symlink_to("000000000001.json" if kind == "link" and number != 1 else "nowhere")
    left = [step for step in range(3) if step != number]
    run = open_run(folder)
    assert run.steps().tolist() == left
    assert [step.step for step in open_run(folder).follow()] == left
    # An empty folder in place of the last record leaves no trace in a listing.
    assert kind == "folder" or any(path.name in problem for problem in run.problems)


def test_a_request_gets_the_first_free_number_despite_strays(folder: Path) -> None:
    storage = LocalStorage(folder)
    for name in ("000000.json~", "7.json"):
        storage.put(f"capture_requests/{name}", [b"{}"])
    request = CaptureRequest({}, 1.0)
    assert write_numbered(storage, request, capture_request_key) == 0
    assert write_numbered(storage, request, capture_request_key) == 1
