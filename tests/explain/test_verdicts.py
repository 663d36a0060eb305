"""The verdict on a run never says more than its rules have seen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.explain.reports.pages import finding
from vinedresser.explain.verdicts import verdict
from vinedresser.objects import LocalStorage
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.records import (
    ChecksRecord,
    ExitRecord,
    StopRecord,
    checks_key,
    findings_key,
    write_record,
)
from vinedresser.testing.runs import make_run, start_run, step_record

FINISHED = ExitRecord("finished", "", 1.0, last_step=99)
JUDGED = ChecksRecord(["a", "b"], ended=True)


def run_with(
    place: Path,
    *findings: Finding,
    end: ExitRecord | None = FINISHED,
    checks: ChecksRecord | None = JUDGED,
    configured: bool = True,
) -> Run:
    """Make a run of 100 steps with findings of the group "default" and its record of checks."""
    start_run(place, total_steps=100)
    storage = LocalStorage(place)
    if configured:
        storage.put("rules/default.json", [b"{}"])
    if checks is not None:
        write_record(storage, checks, key=checks_key("default"))
        lines = "".join(json.dumps(one.to_json()) + "\n" for one in findings)
        storage.put(findings_key("default"), [lines.encode()])
    if end is not None:
        write_record(storage, end)
    return open_run(place)


def test_without_findings_it_rests_on_the_rules_that_could_look(tmp_path: Path) -> None:
    lacking = ChecksRecord(["a", "b", "c"], {"c": ["evaluations"]}, "evaluate", ended=True)
    found = verdict(run_with(tmp_path / "run", checks=lacking))
    assert found.kind == "healthy"
    assert "3 rules" in found.sentence
    assert "100 steps" in found.sentence
    assert "no evaluations (1 rule)" in found.sentence
    assert found.to_json()["lacking"] == {"c": ["evaluations"]}


@pytest.mark.parametrize(
    ("checks", "configured"),
    [
        pytest.param(None, False, id="no rules"),
        pytest.param(None, True, id="rules that never began"),
        pytest.param(ChecksRecord(["a"]), True, id="a judge that did not reach the end"),
        pytest.param(
            ChecksRecord(["a"], {"a": ["losses"]}, ended=True), True, id="nothing to look at"
        ),
        pytest.param(
            ChecksRecord(["a", "b", "c"], {"a": ["losses"], "b": ["labels"]}, ended=True),
            True,
            id="neither losses nor labels",
        ),
        pytest.param(ChecksRecord([], ended=True), True, id="no rule applies"),
    ],
)
def test_what_was_not_judged_is_not_healthy(
    checks: ChecksRecord | None, configured: bool, tmp_path: Path
) -> None:
    found = verdict(run_with(tmp_path / "run", checks=checks, configured=configured))
    assert found.kind == "cannot tell"
    assert found.doubt
    assert "no problem" not in f"{found.headline} {found.sentence} {found.words}".lower()


def test_unreadable_findings_are_not_absent_findings(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    run.storage.put(findings_key("default"), [b"not json\n"])
    faults: list[str] = []
    found = verdict(run, faults)
    assert found.kind == "cannot tell"
    assert "findings/default.jsonl" in faults[0]


@pytest.mark.parametrize(
    ("framework", "steps", "kind"),
    [
        ("torch", 3, "cannot tell"),
        ("keras", 19, "cannot tell"),
        ("torch", 20, "healthy"),
        ("xgboost", 3, "healthy"),
        ("sklearn", 1, "healthy"),
    ],
)
def test_a_few_steps_of_a_network_do_not_show_that_it_is_healthy(
    framework: str, steps: int, kind: str, tmp_path: Path
) -> None:
    run = run_with(tmp_path / "run", end=replace(FINISHED, last_step=steps - 1))
    write_record(run.storage, replace(run.info, framework=framework))
    assert verdict(open_run(tmp_path / "run")).kind == kind


@pytest.mark.parametrize("framework", ["torch", "keras", "xgboost", "sklearn"])
@pytest.mark.parametrize(
    ("losses", "metrics", "kind"),
    [
        ([2.3 + 0.1 * (-1) ** step for step in range(58)], {}, "cannot tell"),
        ([2.3, *(14.0 + step % 3 for step in range(57))], {}, "cannot tell"),
        ([0.5 - 4e-5 * step for step in range(58)], {}, "cannot tell"),
        ([2.3 * 0.97**step + 0.1 * (-1) ** step for step in range(58)], {}, "healthy"),
        # A policy gradient, or adversaries.
        ([(-1.0) ** step for step in range(58)], {"return": 1.0}, "healthy"),
        ([(-1.0) ** step for step in range(58)], {"return": -1.0}, "cannot tell"),
        # Rules judge it.
        ([2.3 + 0.1 * (-1) ** step for step in range(200)], {}, "healthy"),
        # Rounds of a booster.
        ([0.7, 0.6, 0.5], {}, None),
    ],
    ids=["flat", "risen", "hardly falls", "falls", "return rises", "return falls", "many", "three"],
)
def test_a_short_run_whose_loss_has_not_fallen_is_not_healthy(
    framework: str,
    losses: list[float],
    metrics: dict[str, float],
    kind: str | None,
    tmp_path: Path,
) -> None:
    records = [
        step_record(
            step,
            scalars={
                "losses/loss": loss,
                **{f"metrics/{name}": slope * step for name, slope in metrics.items()},
            },
        )
        for step, loss in enumerate(losses)
    ]
    run = make_run(tmp_path / "run", records, framework=framework)
    run.storage.put("rules/default.json", [b"{}"])
    write_record(run.storage, JUDGED, key=checks_key("default"))
    found = verdict(run)
    few = "cannot tell" if framework in ("torch", "keras") else "healthy"
    assert found.kind == (kind or few)
    if kind == "cannot tell":
        assert "no loss has certainly fallen by 3% in its 58 steps (loss was " in found.sentence
        assert "no problem" not in found.words


def test_a_run_without_a_step_is_not_healthy(tmp_path: Path) -> None:
    end = ExitRecord("finished", "", 1.0)
    assert verdict(run_with(tmp_path / "run", end=end)).kind == "cannot tell"


@pytest.mark.parametrize("severity", ["stop", "warning"])
def test_a_finished_run_with_a_finding_is_not_green(severity: str, tmp_path: Path) -> None:
    found = verdict(run_with(tmp_path / "run", finding(severity=severity)))
    assert found.kind == "problem"
    assert found.tone == severity
    assert found.finding is not None
    assert found.fix == finding().remedy
    assert found.since == finding().since


def test_hints_alone_are_no_problem(tmp_path: Path) -> None:
    found = verdict(run_with(tmp_path / "run", finding(severity="info")))
    assert (found.kind, found.finding) == ("healthy", None)
    assert [one["rule"] for one in found.to_json()["others"]] == [finding().rule]


def test_what_a_rule_could_not_judge_is_neither_a_problem_nor_healthy(tmp_path: Path) -> None:
    unable = finding(rule="a", severity="warning", statistic="", seen="it failed")
    alone = verdict(run_with(tmp_path / "alone", unable))
    assert (alone.kind, alone.finding, alone.words) == (
        "cannot tell",
        None,
        "finished; cannot tell: these rules could not judge it: a (it failed)",
    )
    assert [one["seen"] for one in alone.to_json()["others"]] == ["it failed"]
    # It is never put before what the others found.
    both = verdict(run_with(tmp_path / "both", unable, finding(rule="b", severity="warning")))
    assert (both.kind, both.words) == ("problem", "finished; problem: b")
    assert both.to_json()["others"] == alone.to_json()["others"]


def test_a_crash_is_told_with_what_was_found_before(tmp_path: Path) -> None:
    end = ExitRecord("crashed", "KeyError: 'x'", 1.0, code=1, last_step=9)
    found = verdict(run_with(tmp_path / "run", finding(), end=end))
    assert (found.kind, found.tone) == ("problem", "bad")
    assert "exit code 1" in found.headline
    assert finding().rule in found.words


def test_a_run_that_was_stopped_on_request_is_neither_healthy_nor_green(tmp_path: Path) -> None:
    stop = StopRecord("person", "asked", 1.0, step=9)
    end = ExitRecord("stopped", "asked", 1.0, last_step=9, stop=stop)
    found = verdict(run_with(tmp_path / "run", end=end))
    assert (found.kind, found.tone, found.saved) == ("stopped", "stop", 90)


def test_json_is_json(tmp_path: Path) -> None:
    found = verdict(run_with(tmp_path / "run", finding()))
    assert json.loads(json.dumps(found.to_json()))["rule"] == finding().rule


def test_a_running_run_that_nobody_watches_is_not_called_sound(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", end=None, checks=None, configured=False)
    found = verdict(run)
    assert found.kind == "running"
    assert "no problem" not in f"{found.headline} {found.sentence} {found.words}".lower()
    write_record(run.storage, ChecksRecord(["a"]), key=checks_key("default"))
    assert "no problem reported so far" in verdict(run).headline
