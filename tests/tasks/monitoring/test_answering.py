"""A monitor tells how many requests came, were recorded and judged, and never reassures blindly."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.serving.unlimited import UNLIMITED
from tests.tasks.monitoring.lives import WINDOW, begin_life, record
from vinedresser.drift import Baseline
from vinedresser.explain.reports.monitor import MonitorPage, write_monitor_report
from vinedresser.serving import RequestRecorder, RequestStore
from vinedresser.tasks.monitoring.answering import answer
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.judging_windows import judge_windows
from vinedresser.tasks.monitoring.records import AnswerRecord


def numbers(text: str) -> list[int]:
    """Return the whole numbers in a text, in order."""
    return [int(number.replace(",", "")) for number in re.findall(r"\b\d+(?:,\d{3})*\b", text)]


def judged(life: Life, settle: float = 30.0) -> AnswerRecord:
    """Judge what has arrived, and return the answer."""
    judge_windows(life, settle=settle)
    return answer(life)


def test_before_the_first_request_nothing_is_known(tmp_path: Path) -> None:
    found = judged(begin_life(tmp_path))
    assert (found.answer, found.tone, found.came) == ("cannot tell", "doubtful", None)
    [reason] = found.reasons
    assert f"{tmp_path / 'requests' / 'service'}: no requests were recorded there" in reason
    assert found.text.startswith("an unknown number of requests came, an unknown number recorded, ")


def test_too_few_recorded_requests_are_no_absence_of_drift(tmp_path: Path) -> None:
    life = begin_life(tmp_path)
    recorder = RequestRecorder(tmp_path / "requests", "service", sample=0.1, limits=UNLIMITED)
    rows = np.random.default_rng(0).normal(size=(300, 3))
    for place in range(300):
        recorder.record(rows[place : place + 1], ids=[f"r{place}"])
    recorder.close()
    found = judged(life)
    kept = found.recorded
    assert kept is not None
    assert 0 < kept < WINDOW
    assert (found.came, found.lost, found.judged, found.waiting) == (300, 0, 0, kept)
    assert (found.answer, found.tone, found.exact) == ("cannot tell", "doubtful", True)
    told, _, why = found.text.partition("; ")
    assert numbers(told) == [300, kept, 0, kept]
    assert why.startswith("cannot tell")
    assert numbers(why) == [kept, WINDOW]


def test_the_numbers_of_requests_add_up_before_any_counts(tmp_path: Path) -> None:
    life = begin_life(tmp_path)
    record(tmp_path, WINDOW + 10)
    found = judged(life)
    assert (found.judged, found.counted, found.waiting) == (WINDOW, 0, 10)
    told, why, *_ = found.text.split("; ")
    assert numbers(told) == [60, 60, 50, 1, 0, 10]
    assert re.match(r"cannot tell\b.* x0, x1, x2: .*\b50\b", why)


def test_a_baseline_in_no_order_tells_nothing_before_the_requests_show_their_dependence(
    tmp_path: Path,
) -> None:
    life = begin_life(tmp_path, in_time_order=False)
    record(tmp_path, 6 * WINDOW)
    found = judged(life)
    assert (found.answer, found.tone) == ("cannot tell", "doubtful")
    [reason] = found.reasons
    assert "not in time order" in reason
    assert 2_000 in numbers(reason)
    assert f"cannot tell, because {reason}" in found.text
    assert "no drift" not in found.text


def test_what_was_judged_is_told_and_lost_requests_are_not_fine(tmp_path: Path) -> None:
    life = begin_life(tmp_path)
    record(tmp_path, 6 * WINDOW + 7)
    found = judged(life)
    assert (found.answer, found.tone, found.reasons) == ("no drift seen", "good", [])
    # Of the first window alone, too little is known to judge it.
    told, _, seen = found.text.partition("; ")
    assert numbers(told) == [307, 307, 300, 6, 250, 7]
    assert re.match(r"no drift seen .*≥ 0\.", seen)
    recorder = RequestRecorder(tmp_path / "requests", "service", limits=UNLIMITED)
    recorder.record(np.zeros((1, 3)), ids=["a"])
    # Two requests with one id cannot be recorded.
    recorder.record(np.zeros((2, 3)), ids=["a"])
    recorder.close()
    found = judged(life)
    assert (found.came, found.recorded, found.lost) == (310, 308, 2)
    assert (found.answer, found.tone) == ("no drift seen", "doubtful")
    [reason] = found.reasons
    assert re.match(r"2 requests .*\blost\b", reason)
    assert found.text.endswith(f"cannot tell of {reason}")


@pytest.mark.thorough
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_the_page_is_never_green_over_an_alarm_or_a_doubt(tmp_path: Path, shift: float) -> None:
    life = begin_life(tmp_path, accuracy=True)
    record(tmp_path, 6 * WINDOW, shift=shift, answers=True)
    found = judged(life)
    drifted = shift > 0
    assert (found.answer, found.tone) == (
        ("drift", "bad") if drifted else ("no drift seen", "doubtful")
    )
    assert found.reasons == ["accuracy: no label has become known so far"]
    page = MonitorPage(
        name="small",
        answer=found.answer,
        text=found.text,
        tone=found.tone,
        requests={"came": found.came, "recorded": None, "counted": found.counted},
        reasons=found.reasons,
        baseline=Baseline.load(life.baseline),
        windows=0,
        verdicts=[],
        columns={},
        alerts=[],
    )
    html = write_monitor_report(page, tmp_path / "page.html").read_text()
    assert f'<body class="{"stopped" if drifted else "doubtful"}">' in html
    assert "<dd>unknown</dd>" in html
    assert "<dd>300</dd>" in html
    assert f"<dt>Of these count</dt><dd>{found.counted}</dd>" in html
    store = RequestStore(life.monitor.requests)
    requests = store.after(None, 6 * WINDOW)[0]
    right = np.random.default_rng(3).random(len(requests)) < 0.9
    predictions = requests.columns["prediction"]
    store.add_labels(requests.ids, np.where(right, predictions, 1 - predictions).tolist())
    told = judged(life, settle=0.0)
    assert told.reasons == []
    assert told.tone == ("bad" if drifted else "good")


def test_requests_of_another_form_are_an_alert_and_not_fine(tmp_path: Path) -> None:
    life = begin_life(tmp_path, accuracy=True)
    record(tmp_path, 4 * WINDOW)
    found = judged(life)
    assert (found.answer, found.tone) == ("no drift seen", "bad")
    assert "prediction: the requests do not have it" in found.reasons
    assert found.text.endswith("alert: prediction: missing")
