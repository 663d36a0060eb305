"""Whether predictions are correct depends on each other, too: labels of a session are alike."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy.stats import norm

from benchmarks.drift.noise import sessions
from tests.drift.test_saving import of_version_2
from vinedresser.drift import Baseline, DriftError, DriftMonitor, Verdict

ERRORS = 0.1


def baseline_of(correct: NDArray[np.bool_], *, in_time_order: bool = True) -> Baseline:
    column = np.random.default_rng(0).normal(size=len(correct))
    return Baseline.of({"x": column}, correct=correct, in_time_order=in_time_order)


def lives(monitor: DriftMonitor, correct: NDArray[np.bool_]) -> list[Verdict]:
    """Return what a monitor says of labels in batches of 100."""
    return [monitor.add_labels(one) for one in correct.reshape(-1, 100)]


@pytest.mark.thorough
@pytest.mark.parametrize("labels", [1000, 2400])
def test_labels_of_sessions_raise_no_alarm(labels: int) -> None:
    """Without knowing of sessions, two thirds of the lives have an alarm in 3,000 labels."""
    random, count = np.random.default_rng(5), 6
    noise = sessions(100, 0.5)
    correct = noise(random, (labels + 3000, count, 1))[..., 0] > norm.ppf(ERRORS)
    alarms = 0
    for life in correct.T:
        alarms += lives(DriftMonitor(baseline_of(life[:labels])), life[labels:])[-1].alarm
    # By a budget of 1 %, 2 of 6 have a probability of 0.15 %.
    assert alarms <= 1


@pytest.mark.parametrize(
    ("labels", "in_time_order", "reason"),
    [
        (1000, False, "the baseline is not in time order"),
        (1000, True, "the baseline shows too little (1,000 labels)"),
    ],
)
def test_labels_have_to_show_what_the_baseline_does_not(
    labels: int, in_time_order: bool, reason: str
) -> None:
    random = np.random.default_rng(3)
    baseline = baseline_of(random.random(labels) < 0.7, in_time_order=in_time_order)
    verdicts = lives(DriftMonitor(baseline), random.random(4500) < 0.7)
    first = verdicts[0]
    needed = int(re.findall(r"about ([\d,]+) labels have to", first.summary)[0].replace(",", ""))
    assert f"cannot tell, because accuracy: {reason}; about" in first.summary
    # Those of the baseline count.
    assert needed == (1200 if in_time_order else 3400)
    told = [verdict.answer for verdict in verdicts]
    assert {*told[: needed // 100 - 1]} == {"cannot tell"}
    assert {*told[needed // 100 - 1 :]} == {"no drift seen"}
    assert {
        verdict.features[0].would_have_seen is None for verdict in verdicts[: needed // 100 - 1]
    } == {True}


def test_labels_that_are_all_equal_never_show_it() -> None:
    verdict = DriftMonitor(baseline_of(np.ones(4000, bool))).add_labels(np.ones(100, bool))
    assert verdict.answer == "cannot tell"
    assert "equal labels" in verdict.summary


@pytest.mark.parametrize("errors", [0.2, 0.5])
def test_a_fall_is_found_at_once_where_the_baseline_shows_that_labels_are_independent(
    errors: float,
) -> None:
    random = np.random.default_rng(4)
    monitor = DriftMonitor(baseline_of(random.random(5000) > ERRORS))
    quiet = lives(monitor, random.random(1000) > ERRORS)
    assert {one.answer for one in quiet} == {"no drift seen"}
    # A resumed monitor knows it, too.
    monitor = DriftMonitor.resumed(monitor.baseline, json.loads(json.dumps(monitor.state())))
    found = [one.alarm for one in lives(monitor, random.random(2500) > errors)]
    assert found.index(True) < (15 if errors == 0.2 else 3)


def test_a_fall_that_no_session_of_a_batch_explains_is_found_before_it_is_known() -> None:
    random = np.random.default_rng(4)
    monitor = DriftMonitor(baseline_of(random.random(1000) > ERRORS, in_time_order=False))
    found = [one.alarm for one in lives(monitor, random.random(2000) > 0.9)]
    assert found.index(True) < 15


def test_a_saved_baseline_knows_how_far_labels_depend_on_each_other(tmp_path: Path) -> None:
    noise = sessions(10, 0.7)
    random = np.random.default_rng(6)
    correct = noise(random, (9000, 1, 1))[:, 0, 0] > norm.ppf(ERRORS)
    baseline = baseline_of(correct[:5000])
    assert baseline.correctness.labels == 5000
    assert 10 < baseline.correctness.distance < 100
    baseline.save(tmp_path)
    loaded = Baseline.load(tmp_path)
    found = [lives(DriftMonitor(one), correct[5000:]) for one in (baseline, loaded)]
    assert [one.to_json() for one in found[0]] == [one.to_json() for one in found[1]]
    assert found[0][-1].judged_rows <= 4000 // baseline.correctness.distance + 1


def rewritten(folder: Path, more: Mapping[str, NDArray[Any]]) -> None:
    """Save a baseline with other arrays of labels, and with the checksums of these."""
    path, document = folder / "baseline.safetensors", folder / "baseline.json"
    arrays = {name: one for name, one in load_file(path).items() if "labels" not in name}
    save_file({**arrays, **more}, path)
    fields = json.loads(document.read_text()) | {"checksum": ""}
    fields["arrays"] = hashlib.sha256(path.read_bytes()).hexdigest()
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    document.write_text(json.dumps(fields | {"checksum": digest}))


def test_an_earlier_baseline_is_read_and_does_not_know_it(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    # Requests that depend on each other show that the baseline is in time order.
    column = np.repeat(random.normal(size=1250), 4)
    Baseline.of({"x": column}, correct=random.random(5000) > ERRORS).save(tmp_path)
    rewritten(tmp_path, {})
    of_version_2(tmp_path)
    verdict = DriftMonitor(Baseline.load(tmp_path)).add_labels(random.random(100) > ERRORS)
    assert verdict.answer == "cannot tell"
    reason = "the baseline is of a version that did not note the order of labels; about"
    assert reason in verdict.summary


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels_order", np.zeros(2, np.int64)),
        ("labels_order", np.ones(3, np.int64)),
        ("labels_usual", np.zeros((3, 2, 7))),
        ("labels_usual", np.full((3, 1, 7), np.nan)),
    ],
)
def test_impossible_orders_of_labels_are_refused(
    tmp_path: Path, name: str, value: NDArray[Any]
) -> None:
    baseline_of(np.ones(100, bool)).save(tmp_path)
    known = {"labels_order": np.ones(2, np.int64), "labels_usual": np.zeros((3, 1, 7))}
    rewritten(tmp_path, known)
    assert Baseline.load(tmp_path).correctness.labels == 1
    rewritten(tmp_path, known | {name: value})
    with pytest.raises(DriftError, match=f"not a readable baseline: {name}: expected"):
        Baseline.load(tmp_path)
