"""Findings of rules name the records of the rows that they are about."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data.origins.numbered import write
from tests.data.origins.trainings import Training, decode, open_data, pairs
from vinedresser import open_run
from vinedresser.capture import SaveConfig
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.data.leakage.data_leakage import DataLeakage
from vinedresser.rules.judge import judge
from vinedresser.rules.system.slow_input import SlowInput


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
    for one in records:
        assert f"{one['uri']}: record {one['record']} at byte {one['offset']}" in finding.seen
        assert json.loads(Path(one["uri"]).read_bytes().splitlines()[one["record"]])


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
    for _ in range(30):
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
