"""Findings of rules name the records of the rows that they are about."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data.origins.numbered import FILES, RECORDS, SIZE, write
from tests.data.origins.trainings import Training, decode, open_data, pairs
from vinedresser import open_run
from vinedresser.capture import SaveConfig
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.judge import judge
from vinedresser.rules.system.slow_input import SlowInput
from vinedresser.store.records import ExitRecord, fed_records, strays
from vinedresser.tasks.lifecycle.end_tags import end_tags


def test_what_was_fed_and_what_was_left_out_is_in_the_run(tmp_path: Path) -> None:
    folder = write(tmp_path / "data")
    damaged = folder / "1.jsonl"
    lines = damaged.read_bytes().splitlines(keepends=True)
    lines[17] = b"?" + lines[17][1:]
    damaged.write_bytes(b"".join(lines))
    training = Training(tmp_path / "run")
    dataset = open_data(folder, seed=1, skip_damaged=3)
    for _ in range(2):
        training.train(pairs(dataset))
    # The records of the first one of three batches only.
    training.train(itertools.islice(pairs(open_data(folder / "2.jsonl")), 1))
    training.steps()
    run = open_run(tmp_path / "run")
    (finding,) = run.findings()
    assert (finding.rule, finding.severity, finding.value) == ("damaged_records", "info", 1.0)
    offset = sum(map(len, lines[:17]))
    assert "1 record is damaged and left out" in finding.seen
    assert f"{damaged}: record 17 at byte {offset}: " in finding.seen
    assert f"`vinedresser data show {damaged}:{offset}`" in finding.remedy
    (record,) = fed_records(run.storage)
    first, second = record.data_sets
    assert (first["objects"], first["records"], first["iterations"]) == (FILES, 2 * 119, 2)
    assert sorted(first["fed"]) == [
        [str(folder / f"{file}.jsonl"), 2 * (RECORDS - (file == 1)), 2] for file in range(FILES)
    ]
    assert first["left_out"] == [[str(damaged), 17, offset]]
    assert second["fed"] == [[str(folder / "2.jsonl"), SIZE, 1]]
    # In MLflow, as tags.
    tags = end_tags(run, ExitRecord("finished", "", 0.0))
    assert {name: tags[f"data.{name}"] for name in ("objects", "records", "damaged")} == {
        "objects": FILES + 1,
        "records": 2 * 119 + SIZE,
        "damaged": 1,
    }
    assert strays(run.storage) == []


@pytest.mark.thorough
def test_an_evaluated_training_row_is_named_in_both(tmp_path: Path) -> None:
    folder = write(tmp_path / "data")
    # The same rows in another file.
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_bytes(b"".join(sorted((folder / "1.jsonl").read_bytes().splitlines(True))))
    training = Training(tmp_path / "run")
    dataset, others = open_data(folder, seed=1), open_data(held_out)
    for _ in range(10):
        training.train(pairs(dataset))
        training.evaluate(pairs(others))
    training.steps()
    (finding,) = judge(open_run(tmp_path / "run"), [DataLeakage()])
    assert len(finding.evidence["records"]) == 3
    for pair in finding.evidence["records"]:
        trained, evaluated = (
            Path(one["uri"]).read_bytes()[one["offset"] :].splitlines()[0] for one in pair
        )
        assert trained == evaluated
        assert [Path(one["uri"]).name for one in pair] == ["1.jsonl", "held_out.jsonl"]
    first = finding.evidence["records"][0][1]
    assert f"{held_out}: record {first['record']} at byte {first['offset']} is " in finding.seen
    assert f"`vinedresser data show {held_out}:{first['offset']}`" in finding.remedy


@pytest.mark.thorough
def test_records_with_other_labels_each_time_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", files=5)
    generator = torch.Generator().manual_seed(1)

    def relabelled(value: Any) -> tuple[torch.Tensor, int]:
        return decode(value)[0], int(torch.randint(2, (), generator=generator))

    training = Training(tmp_path / "run")
    dataset = open_data(folder, seed=1, decode=relabelled)
    for _ in range(16):
        training.train(pairs(dataset))
    training.steps()
    (finding,) = judge(open_run(tmp_path / "run"), [CorruptLabels()])
    records = finding.evidence["records"]
    assert 0 < len(records) <= 3
    for record in records:
        assert (
            f"{record['uri']}: record {record['record']} at byte {record['offset']}" in finding.seen
        )
        assert json.loads(Path(record["uri"]).read_bytes().splitlines()[record["record"]])


@pytest.mark.thorough
@pytest.mark.parametrize("slow", ["decoding", ""])
def test_the_stage_that_a_training_waits_for_is_named(tmp_path: Path, slow: str) -> None:
    folder = write(tmp_path / "data")

    def spin(seconds: float) -> None:
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            pass

    def decoded(value: Any) -> tuple[torch.Tensor, int]:
        spin(0.0005 if slow else 0)
        return decode(value)

    training = Training(tmp_path / "run", collections={"timing": SaveConfig(every=1)})
    dataset = open_data(folder, seed=1, decode=decoded)
    for _ in range(22):
        for batch in pairs(dataset):
            # The batch is there, but the loop has something else to do.
            spin(0 if slow else 0.008)
            training.train([batch])
    training.steps()
    # The machine may be busy: the share is not what is tested.
    (finding,) = judge(open_run(tmp_path / "run"), [SlowInput(share=0.05)])
    seconds = finding.evidence["seconds_by_stage"]
    assert finding.evidence["stage"] == slow
    if slow:
        assert seconds["decoding"] > 0.003
        assert "decode in several processes: TorchLoader(dataset, num_workers=" in finding.remedy
    else:
        assert "the loop does other work between two steps" in finding.cause
