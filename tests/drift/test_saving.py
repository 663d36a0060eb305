"""Baselines are saved completely, and damaged ones are refused."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from tests.drift.worlds import requests
from tests.property_tests import examples
from vinedresser.drift import Baseline, DriftError, DriftMonitor


@pytest.fixture(scope="module")
def baseline_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    Baseline.of(requests(np.random.default_rng(2), 150)).save(folder)
    return folder


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


@settings(examples(60))
@given(bit=st.integers(0, 1 << 20), name=st.sampled_from(["baseline.json", "baseline.safetensors"]))
def test_a_flipped_bit_is_refused_or_changes_nothing(
    baseline_on_disk: Path, bit: int, name: str
) -> None:
    path = baseline_on_disk / name
    before = path.read_bytes()
    place = bit // 8 % len(before)
    changed = bytes([before[place] ^ (1 << bit % 8)])
    path.write_bytes(before[:place] + changed + before[place + 1 :])
    refused, document = "", b""
    try:
        Baseline.load(baseline_on_disk)
        document = path.read_bytes()
    except DriftError as error:
        refused = str(error)
    finally:
        path.write_bytes(before)
    if refused:
        assert "not a readable baseline" in refused
        return
    # Between values, JSON has spaces and line feeds.
    assert name == "baseline.json"
    assert json.loads(document) == json.loads(before)


def of_version_2(folder: Path) -> None:
    """Make a baseline one of the version that did not note the order of its rows."""
    document = json.loads((folder / "baseline.json").read_text()) | {"version": 2, "checksum": ""}
    del document["in_time_order"]
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    (folder / "baseline.json").write_text(json.dumps(document | {"checksum": digest}))


@pytest.mark.parametrize("in_time_order", [True, False])
def test_a_baseline_that_did_not_note_the_order_of_its_rows_says_what_it_does_not_know(
    tmp_path: Path, in_time_order: bool
) -> None:
    random = np.random.default_rng(4)
    Baseline.of({"x": random.normal(size=500)}, in_time_order=in_time_order).save(tmp_path)
    assert Baseline.load(tmp_path).in_time_order is in_time_order
    of_version_2(tmp_path)
    loaded = Baseline.load(tmp_path)
    # What it kept of the dependence of its rows shows that they were in time order.
    assert loaded.in_time_order is (True if in_time_order else None)
    monitor = DriftMonitor(loaded)
    first, second = (monitor.update({"x": random.normal(size=200)}) for _ in range(2))
    if in_time_order:
        assert second.answer == "no drift seen"
        return
    assert "the baseline is of an unknown order; about 4,000 requests" in first.summary
    loaded.save(tmp_path / "again")
    assert Baseline.load(tmp_path / "again").in_time_order is None


def of_version_1(folder: Path, category: int = 0) -> None:
    """Make a baseline one of the earlier version, with another category in its sample."""
    path = folder / "baseline.safetensors"
    arrays = load_file(path)
    place = next(name for name, one in arrays.items() if "sample" in name and one.dtype == np.int64)
    arrays[place][5] = category
    edged = [name for name in arrays if name.startswith(("edges/", "correct/"))]
    arrays |= {name: np.squeeze(arrays[name], -2) for name in edged}
    save_file({name: one for name, one in arrays.items() if "/" in name}, path)
    document = json.loads((folder / "baseline.json").read_text())
    for key in ("cycle", "arrays", "checksum", "in_time_order"):
        del document[key]
    (folder / "baseline.json").write_text(json.dumps(document | {"version": 1}))


def test_a_baseline_without_checksums_is_read(saved: Path) -> None:
    of_version_1(saved)
    assert len(Baseline.load(saved).columns) == len(requests(np.random.default_rng(0), 1))


@pytest.mark.parametrize("value", [99, -2, 1 << 40])
def test_an_impossible_category_is_refused(saved: Path, value: int) -> None:
    of_version_1(saved, value)
    with pytest.raises(DriftError, match=r"the sample of 'city' has categories .* but there are"):
        Baseline.load(saved)


def test_a_baseline_of_this_version_without_its_checksum_is_refused(saved: Path) -> None:
    document = json.loads((saved / "baseline.json").read_text())
    del document["arrays"]
    (saved / "baseline.json").write_text(json.dumps(document))
    with pytest.raises(DriftError, match=r"baseline\.json has no 'arrays'"):
        Baseline.load(saved)
