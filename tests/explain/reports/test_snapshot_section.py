"""The report shows snapshots and what replays of them found, as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replay.stories import BAD_STEP, train_half
from vinedresser.explain.reports.report import write_report
from vinedresser.objects import LocalStorage
from vinedresser.snapshots.replay_record import ReplayRecord, TriedChange, replay_key, save_replay
from vinedresser.store.reading.reader import open_run


def page(run: Path) -> str:
    """Return the section of the report."""
    found = write_report(open_run(run), run / "report.html").read_text(encoding="utf-8")
    return found.partition('<section id="snapshots">')[2].partition("</section>")[0]


def test_snapshots_and_their_replays_are_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_half(run)
    shown = page(run)
    assert f"<b>step {BAD_STEP}</b>: gradients not finite" in shown
    assert f"vinedresser replay {run}/snapshots/step-{BAD_STEP} --factory" in shown
    trials = [TriedChange("<script>float32", "loss 1", "cures it").to_json()]
    record = ReplayRecord(1.0, "loss the same", "aten.exp", "a.py:1: <b>x</b>", "", "yes", trials)
    save_replay(LocalStorage(run), f"step-{BAD_STEP}", record)
    shown = page(run)
    assert "run again: loss the same" in shown
    assert "aten.exp · a.py:1: &lt;b&gt;x&lt;/b&gt;" in shown
    assert '<tr class="cure"><th scope="row">&lt;script&gt;float32</th>' in shown


def test_a_finding_says_what_cures_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_half(run)
    proved = ReplayRecord(
        1.0, "same", tried="<b>float32 cures it", symptom="not finite", cures={"precision": []}
    )
    save_replay(LocalStorage(run), f"step-{BAD_STEP}", proved)
    text = write_report(open_run(run), run / "report.html").read_text(encoding="utf-8")
    finding = text.partition('id="finding-1"')[2].partition("</article>")[0]
    told = f"&lt;b&gt;float32 cures it; from step {BAD_STEP}, symptom: not finite"
    assert f"<dt>Tried</dt><dd>{told}</dd>" in finding
    assert text.count("<dt>Tried</dt>") == 1
    # What only helped, without a proof, is in the section of the snapshots.
    save_replay(LocalStorage(run), f"step-{BAD_STEP}", replace(proved, cures={}))
    text = write_report(open_run(run), run / "report.html").read_text(encoding="utf-8")
    assert "<dt>Tried</dt>" not in text
    assert "&lt;b&gt;float32" in text


@pytest.mark.parametrize("values", [[1.0], [1.0, float("nan")], ["1", 2.0], [True, 2.0]])
def test_values_that_are_no_numbers_are_refused(values: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError), match="two numbers"):
        ReplayRecord(1.0, "", cures={"learning rate": values})


def test_a_damaged_replay_is_named_among_the_problems(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_half(run)
    LocalStorage(run).put(replay_key(f"step-{BAD_STEP}"), [b"{"])
    text = write_report(open_run(run), run / "report.html").read_text(encoding="utf-8")
    assert "replay.json" in text.partition('<section id="problems">')[2].partition("</section>")[0]


def test_a_run_without_snapshots_has_no_section(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_half(run)
    for path in (run / "snapshots").glob("*/snapshot.json"):
        path.unlink()
    assert page(run) == ""
