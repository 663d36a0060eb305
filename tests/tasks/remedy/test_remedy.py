"""What is tried in the place of a stopped run: which values, from where, and when nothing is."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.tasks.remedy.findings import finding
from vinedresser.cli.views.results import print_remedied
from vinedresser.errors import ConfigError
from vinedresser.explain.reports.report import write_report
from vinedresser.objects import LocalStorage
from vinedresser.rules.findings_file import FindingsFile
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import (
    ExitCause,
    ExitRecord,
    RemedyRecord,
    StopRecord,
    TrackingRecord,
    write_record,
)
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.tasks.config.remedy_settings import NO_REMEDY, RemedySettings
from vinedresser.tasks.config.run_spec import RunSpec
from vinedresser.tasks.lifecycle.run_result import RemedyResult, run_result
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.remedy.remedy_attempts import (
    Attempt,
    RemedyAttempts,
    healthy_checkpoint,
)
from vinedresser.testing.runs import make_run, step_record

LOSSES = [2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 9.0, 99.0, 999.0, 9e4, 9e5, 9e6]


def stopped(
    directory: Path,
    *findings: Finding,
    by: str = "rule",
    cause: ExitCause = "stopped",
    **fields: Any,
) -> None:
    """Make a run that was stopped for the first of its findings."""
    records = [step_record(n, scalars={"losses/own": loss}) for n, loss in enumerate(LOSSES)]
    make_run(directory, records, name=directory.name, **fields)
    storage = LocalStorage(directory)
    stop = StopRecord(by, "", 1.0, "own", 15, findings[0].to_json())  # type: ignore[arg-type]
    found = FindingsFile(storage, "default")
    for one in findings:
        found.add(one)
    write_record(storage, ExitRecord(cause, "", 2.0, stop=stop))


def course(place: Path, parameters: dict[str, Any], **settings: Any) -> RemedyAttempts:
    plan = RunSpec(place.name, ["train"], parameters, {}, 100)
    tracking = TrackingRecord("sqlite:///none", "0", "id")
    return RemedyAttempts(RunPlace(place), plan, RemedySettings(**settings), tracking)


def attempt_after(tmp_path: Path, correction: dict[str, Any], **settings: Any) -> RemedyAttempts:
    """Return the course of a run with lr 100 that was stopped."""
    stopped(tmp_path / "run", finding(correction))
    return course(tmp_path / "run", {"lr": 100, "fast": True}, **settings)


def test_the_correction_is_laid_on_the_parameters(tmp_path: Path) -> None:
    attempt = attempt_after(tmp_path, {"lr": 1.0}).next()
    assert attempt is not None
    assert attempt.remedy is not None
    assert attempt.spec.name == "run-remedy-1"
    # The script took a whole number.
    assert attempt.spec.argv == ["train", "--lr", "1", "--fast"]
    assert attempt.spec.total_steps == 100
    assert attempt.remedy.changed == {"lr": [100, 1]}
    assert (attempt.remedy.first, attempt.remedy.stopped) == ("run", "run")
    assert attempt.remedy.beginning == "from the start"


def test_a_function_gets_the_corrected_parameters_as_it_got_the_first(tmp_path: Path) -> None:
    stopped(tmp_path / "run", finding({"lr": 1.0}))
    program = [sys.executable, "-m", "vinedresser.infra.entry", "net:train"]
    spec = RunSpec("run", program, {"lr": 100.0}, {"A": "b"}, None, calls=True)
    tracking = TrackingRecord("sqlite:///none", "0", "id")
    attempt = RemedyAttempts(RunPlace(tmp_path / "run"), spec, RemedySettings(), tracking).next()
    assert attempt is not None
    assert attempt.spec.argv == [*program, "lr=1.0"]
    assert attempt.spec.environment == {"A": "b"}


def test_the_next_correction_builds_on_the_last_and_nothing_is_tried_twice(tmp_path: Path) -> None:
    one = attempt_after(tmp_path, {"lr": 1.0}, times=5)
    for value, expected in ((1.0, 1), (0.5, 0.5)):
        attempt = one.next()
        assert attempt is not None
        assert attempt.spec.parameters["lr"] == expected
        place = tmp_path / attempt.spec.name
        # The first attempt proposes 0.5, the second one 100: with that it began.
        stopped(place, finding({"lr": 0.5 if value == 1.0 else 100.0}))
        one.begun(RunPlace(place), attempt)
    assert one.next() is None
    assert one.left == "own proposes lr = 100.0, which was tried before"


@pytest.mark.parametrize(
    ("correction", "settings", "why"),
    [
        ({}, {}, "own proposes no other value of a parameter"),
        (
            {"clip": 1.0},
            {},
            (
                "own proposes clip = 1.0, but clip is not a parameter of the experiment file "
                "(they are: lr, fast)"
            ),
        ),
        ({"lr": 100.0}, {}, "own proposes lr = 100.0, which was tried before"),
    ],
)
def test_why_a_run_is_left_alone(
    tmp_path: Path, correction: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    one = attempt_after(tmp_path, correction, **settings)
    assert one.next() is None
    assert one.left == why


def test_no_more_attempts_than_asked_for(tmp_path: Path) -> None:
    one = attempt_after(tmp_path, {"lr": 1.0}, times=1)
    attempt = one.next()
    assert attempt is not None
    stopped(tmp_path / "again", finding({"lr": 0.01}))
    one.begun(RunPlace(tmp_path / "again"), attempt)
    assert one.left == ""
    assert one.next() is None
    assert one.left == "own again, after 1 attempt"


@pytest.mark.parametrize(
    ("by", "cause", "why"),
    [
        ("person", "stopped", "stopped on request"),
        ("rule", "crashed", "crashed: "),
        ("rule", "finished", ""),
    ],
)
def test_only_what_a_rule_stopped_is_begun_again(
    tmp_path: Path, by: str, cause: ExitCause, why: str
) -> None:
    stopped(tmp_path / "run", finding({"lr": 1.0}), by=by, cause=cause)
    one = course(tmp_path / "run", {"lr": 100.0})
    assert one.next() is None
    assert one.left == why


def crashed(directory: Path, *saved: str, steps: int = 30, code: int = 1) -> None:
    """Make a run that crashed, with checkpoints."""
    make_run(directory, [step_record(n) for n in range(steps)], name=directory.name)
    save(directory, *saved)
    write_record(LocalStorage(directory), ExitRecord("crashed", "no such label", 2.0, code))


def test_a_run_that_failed_begins_again_as_often_as_asked_for(tmp_path: Path) -> None:
    crashed(tmp_path / "run", "step-10.pt", "step-20.pt", "step-30.rank-0.pt", "step-30.rank-1.pt")
    one = course(tmp_path / "run", {"lr": 1.0}, times=0, restarts=2, resume="from")
    again = one.next()
    assert again is not None
    assert (again.spec.name, again.remedy) == ("run-restart-1", None)
    # Not with the part of a rank that the run did not have.
    path = str(tmp_path / "run/checkpoints/step-20.pt")
    assert again.spec.parameters == {"lr": 1.0, "from": path}
    assert again.spec.total_steps == 80
    place = tmp_path / "run-restart-1"
    crashed(place)
    one.begun(RunPlace(place), again)
    # It has saved nothing itself.
    again = one.next()
    assert again is not None
    assert (again.spec.name, again.spec.total_steps) == ("run-restart-2", 80)
    assert again.spec.parameters == {"lr": 1.0, "from": path}
    crashed(tmp_path / "run-restart-2")
    one.begun(RunPlace(tmp_path / "run-restart-2"), again)
    assert one.next() is None
    assert one.left == "crashed: no such label"
    assert [each.name for each in one.restarted] == ["run", "run-restart-1"]


def test_a_checkpoint_that_no_restart_could_load_makes_room_for_the_one_before(
    tmp_path: Path,
) -> None:
    crashed(tmp_path / "run", "step-10.pt", "step-20.pt")
    one = course(tmp_path / "run", {"from": "mine.pt"}, times=0, restarts=9, resume="from")
    begun = []
    # 126: the program could not be started, which says nothing about the checkpoint.
    for number, (steps, code) in enumerate([(0, 126), (5, 1), (0, 1), (0, 1), (0, 1)]):
        again = one.next()
        assert again is not None
        begun.append((Path(again.spec.parameters["from"]).name, again.spec.total_steps))
        place = tmp_path / f"run-restart-{number}"
        crashed(place, steps=steps, code=code)
        one.begun(RunPlace(place), again)
    assert begun == [("step-20.pt", 80)] * 3 + [("step-10.pt", 90), ("mine.pt", 100)]


def test_restarts_wait_ever_longer_but_the_first_and_those_after_a_correction(
    tmp_path: Path,
) -> None:
    one = course(tmp_path / "run", {}, restarts=9)
    again = Attempt(RunSpec("run", ["train"], {}, {}, None), None)
    pauses = []
    for number in range(8):
        one.begun(RunPlace(tmp_path / f"run-restart-{number}"), again)
        pauses.append(one.pause)
    assert pauses == [0, 2, 4, 8, 16, 32, 60, 60]
    corrected = RemedyRecord("run", 1, "run", finding({}).to_json(), {})
    one.begun(RunPlace(tmp_path / "run-remedy-1"), again._replace(remedy=corrected))
    assert one.pause == 0


@pytest.mark.parametrize(("section", "begins_again"), [("step", True), ("end", False)])
def test_a_run_that_hung_begins_again_unless_its_steps_are_done(
    tmp_path: Path, section: str, begins_again: bool
) -> None:
    hang = replace(finding({}), fault="stalled", evidence={"section": section})
    stopped(tmp_path / "run", hang)
    one = course(tmp_path / "run", {"lr": 1.0}, times=0, restarts=1)
    again = one.next()
    assert (again is not None) == begins_again
    if again is not None:
        assert (again.spec.name, again.remedy) == ("run-restart-1", None)


def test_where_the_symptom_has_no_correction_the_cause_has(tmp_path: Path) -> None:
    symptom = replace(finding({}), fault="nonfinite")
    cause = replace(finding({"lr": 1.0}, rule="cause", since=2), fault="learning_rate_too_high")
    stopped(tmp_path / "run", symptom, cause)
    attempt = course(tmp_path / "run", {"lr": 100.0}).next()
    assert attempt is not None
    assert attempt.remedy is not None
    assert attempt.remedy.finding["rule"] == "cause"


def save(directory: Path, *names: str) -> None:
    (directory / "checkpoints").mkdir()
    for name in names:
        (directory / "checkpoints" / name).write_text("weights", encoding="utf-8")


def test_the_last_checkpoint_at_which_all_was_well(tmp_path: Path) -> None:
    stopped(tmp_path / "run", finding({}))
    # That of step 9 is of two ranks; at 14 the loss has risen; 16 is after the finding.
    save(
        tmp_path / "run",
        *("step-0.pt", "step-5.pt", "step-7.ubj", "best.pt", "step-14.pt", "step-16.pt"),
        *("step-9.safetensors", "step-9.rank-1.safetensors", ".tmp-1-step-8.pt"),
    )
    run = open_run(tmp_path / "run")
    found = healthy_checkpoint(run, since=14)
    assert found is not None
    assert (found.key, found.steps) == ("checkpoints/step-7.ubj", 7)
    assert found.run == "run"
    earlier = healthy_checkpoint(run, since=6)
    assert earlier is not None
    assert earlier.steps == 5
    assert healthy_checkpoint(run, since=4) is None


def test_an_attempt_begins_from_a_checkpoint_with_the_steps_that_are_left(tmp_path: Path) -> None:
    one = attempt_after(tmp_path, {"lr": 1.0}, resume="load")
    save(tmp_path / "run", "step-8.pt")
    attempt = one.next()
    assert attempt is not None
    assert attempt.remedy is not None
    path = str(tmp_path / "run" / "checkpoints" / "step-8.pt")
    assert attempt.spec.parameters == {"lr": 1, "fast": True, "load": path}
    assert attempt.spec.total_steps == 92
    assert attempt.remedy.beginning == "from checkpoints/step-8.pt of run"
    # What went wrong at once in the attempt sends the next one back to the start.
    stopped(tmp_path / "again", finding({"lr": 0.01}, since=0))
    one.begun(RunPlace(tmp_path / "again"), attempt)
    again = one.next()
    assert again is not None
    assert again.spec.parameters == {"lr": 0.01, "fast": True}
    assert again.spec.total_steps == 100


def test_without_a_parameter_for_it_no_checkpoint_is_used(tmp_path: Path) -> None:
    one = attempt_after(tmp_path, {"lr": 1.0})
    save(tmp_path / "run", "step-8.pt")
    attempt = one.next()
    assert attempt is not None
    assert attempt.spec.parameters == {"lr": 1, "fast": True}


def experiment(tmp_path: Path, table: str, **settings: Any) -> RemedySettings:
    (tmp_path / "train.py").touch()
    (tmp_path / "e.toml").write_text(
        '[run]\nname = "a"\ncommand = ["python", "train.py"]\n' + table, encoding="utf-8"
    )
    return load_experiment(tmp_path / "e.toml", **settings).remedy


def test_the_table_and_what_takes_its_place(tmp_path: Path) -> None:
    assert experiment(tmp_path, "") == NO_REMEDY
    assert experiment(tmp_path, "", remedy=3) == RemedySettings(3)
    assert experiment(tmp_path, "[remedy]") == RemedySettings(2)
    full = '[remedy]\ntimes = 4\nfrom = "checkpoint"\nresume = "load"'
    assert experiment(tmp_path, full) == RemedySettings(4, "load")
    assert experiment(tmp_path, full, remedy=0) == RemedySettings(0, "load")
    started = full.replace('"checkpoint"', '"start"')
    assert experiment(tmp_path, started) == RemedySettings(4)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("remedy = 2", "remedy: must be a table, not 2"),
        ("[remedy]\ntimes = -1", "remedy.times: must be at least 0, not -1"),
        ("[remedy]\ntime = 1", "remedy.time: no such key; did you mean times?"),
        ('[remedy]\nfrom = "end"', """remedy.from: must be "checkpoint" or "start", not 'end'"""),
        ('[remedy]\nfrom = "checkpoint"', "remedy.resume: missing"),
    ],
)
def test_what_is_wrong_in_the_table(tmp_path: Path, table: str, message: str) -> None:
    # A key at the top of the document comes before its first table.
    head = table + "\n" if table.startswith("remedy") else ""
    (tmp_path / "train.py").touch()
    (tmp_path / "e.toml").write_text(
        f'{head}[run]\nname = "a"\ncommand = ["python", "train.py"]\n{"" if head else table}',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as error:
        load_experiment(tmp_path / "e.toml")
    assert message in str(error.value)


def test_no_checkpoints_are_fetched_from_an_object_store(tmp_path: Path) -> None:
    table = '[remedy]\nresume = "load"'
    with pytest.raises(ConfigError, match=r"remedy\.resume: not supported on an object store"):
        experiment(tmp_path, table, store="s3://bucket/runs")
    assert experiment(tmp_path, "[remedy]", store="s3://bucket/runs") == RemedySettings(2)


def test_the_report_of_an_attempt_says_what_is_different(tmp_path: Path) -> None:
    remedy = RemedyRecord(
        "a <b>", 1, "a <b>", finding({"lr": 1.0}).to_json(), {"lr": [100, 0.5]}, ""
    )
    stopped(tmp_path / "run", finding({}), remedy=remedy.to_json())
    html = write_report(open_run(tmp_path / "run"), tmp_path / "report.html").read_text()
    assert 'href="../a%20%3Cb%3E/report.html">a &lt;b&gt;</a>' in html
    assert re.search(r"lr 0\.5 .*\b100\. own stopped a &lt;b&gt;: the loss rose", html)


def test_what_the_command_line_says_at_the_end(tmp_path: Path) -> None:
    stopped(tmp_path / "run", finding({"lr": 1.0}), parameters={"lr": 100})
    changed = RemedyRecord("run", 1, "run", finding({}).to_json(), {"lr": [100, 1]}).to_json()
    ends: dict[str, ExitCause] = {"bad": "stopped", "good": "finished"}
    for name, cause in ends.items():
        stopped(tmp_path / name, finding({}), cause=cause, parameters={"lr": 1}, remedy=changed)
    run, bad, good = (run_result(tmp_path / name) for name in ("run", "bad", "good"))
    for remedied, line in (
        (RemedyResult(run, (), "why"), "run: not restarted: why"),
        (RemedyResult(run, (bad,), "why"), "run: not cured by lr 1 instead of 100: why"),
        (
            RemedyResult(run, (bad, good), ""),
            "run: cured by lr 1 instead of 100 (good): own 9e+06 against 9e+06",
        ),
    ):
        console = Console(file=io.StringIO(), width=40)
        print_remedied(remedied, console)
        assert console.file.getvalue() == line + "\n"  # type: ignore[attr-defined]
