"""What each rule alone contributes, from verdicts made by hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ablation import ablation, append_verdicts, read_verdicts
from tests.benchmarks.faults.test_verdict import finding, verdict


def test_the_table_counts_what_would_be_lost_without_a_rule(tmp_path: Path) -> None:
    dead = finding(rule="dead")
    rate = finding(rule="rate", severity="warning", step=20, fault="learning_rate_too_high")
    late = finding(rule="rate", severity="warning", step=70)
    verdicts = [
        verdict(dead),
        # The rate is told to cause the dead units, which are the fault.
        verdict(rate, dead),
        # Both name the right fault.
        verdict(dead, late),
        verdict(late, faulty=False),
        verdict(),
    ]
    append_verdicts(tmp_path / "one", verdicts[:2])
    append_verdicts(tmp_path / "one", verdicts[2:])
    read = read_verdicts(tmp_path / "one")
    assert [one.to_json() for one in read] == [one.to_json() for one in verdicts]
    rows = ablation(read, {"dead": 2.0})
    counts = {(row[0], row[1]): list(map(int, row[2:8])) for row in rows[:4]}
    # found, only it, right, only right by it, wrong by it, false
    assert counts == {
        ("dead", "dying_relu"): [3, 1, 2, 1, 0, 0],
        ("rate", ""): [2, 0, 0, 0, 1, 1],
        ("", "dying_relu"): [1, 0, 0, 0, 0, 1],
        ("", "learning_rate_too_high"): [1, 0, 0, 0, 1, 0],
    }
    assert rows[0][9] == "2.0"
    parts = ablation(read, {}, lambda one: f"at step {one.step}")
    assert [row[:3] for row in parts if row[2] != "0"] == [
        ["dead", "at step 50", "3"],
        ["rate", "", "2"],
        ["", "at step 20", "1"],
        ["", "at step 70", "1"],
    ]
