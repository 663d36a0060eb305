"""Baselines are saved completely, and damaged ones are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.drift.worlds import requests
from vinedresser.drift import Baseline, DriftError, DriftMonitor


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    random = np.random.default_rng(2)
    rows = requests(random, 150)
    rows["city"][3] = None
    Baseline.of(rows, correct=random.random(150) < 0.9).save(tmp_path / "baseline")
    return tmp_path / "baseline"


def test_a_loaded_baseline_gives_the_same_verdicts(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    baseline = Baseline.of(requests(random, 150), correct=random.random(150) < 0.9)
    baseline.save(tmp_path)
    windows = [requests(random, 100, shift=shift) for shift in (0, 0, 2)]
    monitors = DriftMonitor(baseline), DriftMonitor(Baseline.load(tmp_path))
    verdicts = [[monitor.update(rows).to_json() for rows in windows] for monitor in monitors]
    assert verdicts[0] == verdicts[1]


def test_a_second_baseline_in_a_folder_is_refused(saved: Path) -> None:
    with pytest.raises(DriftError, match="has a baseline already"):
        Baseline.load(saved).save(saved)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 7),
        ("columns", [{"name": "age"}]),
        ("seed", "x"),
        ("codes", {"city": {"a": "b"}}),
    ],
)
def test_a_document_with_other_contents_is_refused(saved: Path, key: str, value: object) -> None:
    path = saved / "baseline.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(DriftError, match="not a readable baseline"):
        Baseline.load(saved)


@pytest.mark.parametrize("name", ["baseline.json", "baseline.safetensors"])
def test_damaged_missing_and_special_files_are_refused(saved: Path, name: str) -> None:
    path = saved / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(DriftError, match="not a readable baseline"):
        Baseline.load(saved)
    path.unlink()
    with pytest.raises(DriftError, match="holds no baseline"):
        Baseline.load(saved)
    os.mkfifo(path)
    with pytest.raises(DriftError, match="not a readable baseline"):
        Baseline.load(saved)
