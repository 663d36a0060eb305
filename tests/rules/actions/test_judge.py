"""A judge takes the actions for its findings once, and never waits for them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.actions.servers import web_server
from tests.waiting import until
from vinedresser.errors import ConfigError, CorruptData
from vinedresser.objects import LocalStorage
from vinedresser.rules.actions.journal import Journal
from vinedresser.rules.actions.plan import ActionPlan
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import (
    StopRecord,
    TagsRecord,
    actions_key,
    read_record,
    tags_key,
)
from vinedresser.store.writing.writer import RunWriter
from vinedresser.tasks.config.experiment import load_experiment
from vinedresser.testing.runs import end_run, start_run, step_record


def finding(rule: str, severity: Any) -> Finding:
    return Finding(rule, severity, 1, 1, "train", 0, "", "l2", 0.0, 0.0, 1.0, "", "", "")


class Judged:
    """A run whose loss is NaN from step 20 on, and its judge."""

    def __init__(
        self, tmp_path: Path, actions: dict[str, Any], rule: dict[str, Any] | None = None
    ) -> None:
        self.path = tmp_path / "run"
        self.storage = LocalStorage(self.path)
        self.spec = tmp_path / "spec.json"
        rules = {"nonfinite": rule or {}}
        self.spec.write_text(json.dumps({"rules": rules, "actions": actions}))
        start_run(self.path)
        self.writer = RunWriter(self.storage, 0)
        for step in range(21):
            loss = float("nan") if step == 20 else 1.0
            self.writer.add(step_record(step, scalars={"losses/a": loss}))

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "vinedresser.rules.worker", str(self.path)]
        command += ["--group", "all", "--spec", str(self.spec)]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def over(self) -> None:
        """End the run."""
        self.writer.close()
        end_run(self.path)

    def stop(self) -> StopRecord | None:
        return read_record(self.storage, StopRecord)

    def actions(self) -> list[tuple[str, str]]:
        file = self.path / actions_key("all")
        lines = file.read_text().splitlines() if file.exists() else []
        return [(one["action"], one["outcome"]) for one in map(json.loads, lines)]


def said(worker: subprocess.Popen[str]) -> str:
    _, errors = worker.communicate(timeout=120)
    assert worker.returncode == 0, errors
    return errors


@pytest.mark.thorough
def test_a_judge_that_is_killed_sends_nothing_twice(tmp_path: Path) -> None:
    with web_server([503]) as server:
        settings = {"notify": {"webhook": server.url}, "on_stop": ["notify", "tag", "stop"]}
        judged = Judged(tmp_path, settings)
        worker = judged.start()
        until(lambda: len(judged.actions()) == 3)
        worker.kill()
        worker.communicate()
        judged.over()
        assert said(judged.start()) == ""
        assert len(server.taken) == 1
        assert server.asked == 2
    assert sorted(judged.actions()) == [("notify", "done"), ("stop", "done"), ("tag", "done")]
    (found,) = (one for one in open_run(judged.path).findings() if one.severity == "stop")
    tags = read_record(judged.storage, TagsRecord, key=tags_key("all"))
    assert tags == TagsRecord({"nonfinite": f"step 20: {found.seen}"})
    # The rest of the URL may be secret.
    files = (path for path in judged.path.rglob("*") if path.is_file())
    assert not any(b"secret-path" in file.read_bytes() for file in files)


@pytest.mark.thorough
def test_a_failure_is_logged_once_and_retried_by_the_next_judge(tmp_path: Path) -> None:
    with web_server([503] * 100) as server:
        settings = {"notify": {"webhook": server.url, "patience": 0.1}, "on_stop": ["notify"]}
        judged = Judged(tmp_path, settings)
        judged.over()
        errors = said(judged.start())
        assert errors.count("action notify failed: 127.0.0.1") == 1
        server.codes.clear()
        assert said(judged.start()) == ""
        assert len(server.taken) == 1
    assert judged.actions() == [("notify", "failed"), ("notify", "done")]
    assert judged.stop() is None


@pytest.mark.thorough
def test_a_slow_server_delays_no_run(tmp_path: Path) -> None:
    with web_server([503] * 100) as server:
        settings = {"notify": {"webhook": server.url}, "on_stop": ["notify", "stop"]}
        judged = Judged(tmp_path, settings)
        worker = judged.start()
        until(judged.stop)
        assert ("notify", "done") not in judged.actions()
        judged.over()
        server.codes.clear()
        said(worker)
        assert ("notify", "done") in judged.actions()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("severity", "actions", "stops"),
    [("stop", None, True), ("stop", [], False), ("warning", None, False), ("info", ["stop"], True)],
)
def test_the_actions_of_a_rule_override_the_default(
    tmp_path: Path, severity: str, actions: list[str] | None, stops: bool
) -> None:
    rule: dict[str, Any] = {"severity": severity}
    judged = Judged(tmp_path, {}, rule | ({} if actions is None else {"actions": actions}))
    worker = judged.start()
    until((judged.path / "findings/all.jsonl").exists)
    if stops:
        until(judged.stop)
    judged.over()
    said(worker)
    assert (judged.stop() is not None) is stops


@pytest.mark.thorough
def test_a_snapshot_of_a_run_that_is_over_is_refused(tmp_path: Path) -> None:
    settings = {"on_stop": ["snapshot", "checkpoint", "adjust"], "adjust": {"lr": 0.5}}
    judged = Judged(tmp_path, settings)
    judged.over()
    errors = said(judged.start())
    assert "action snapshot was refused" in errors
    names = ("snapshot", "checkpoint", "adjust")
    assert judged.actions() == [(name, "refused") for name in names]


def test_defaults_are_by_severity() -> None:
    plan = ActionPlan.from_tables(
        {"on_warning": ["tag"]}, {"overfitting": {"actions": ["stop", "snapshot"]}}
    )
    assert plan.of(finding("nonfinite", "stop")) == ("stop",)
    assert plan.of(finding("nonfinite", "warning")) == ("tag",)
    assert plan.of(finding("nonfinite", "info")) == ()
    # A rule without data does not end a run.
    complaint = replace(finding("overfitting", "warning"), statistic="")
    assert plan.of(complaint) == ("tag",)
    # In the order of execution.
    assert plan.of(finding("overfitting", "info")) == ("snapshot", "stop")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('on_stop = ["notfy"]', r"actions.on_stop: no such action 'notfy'; did you mean notify"),
        ('on_stop = "stop"', r"actions.on_stop: must be a list of actions, not 'stop'"),
        ('on_stop = ["email"]', r"email needs settings: \[actions.email\]"),
        ("on_stopp = []", "actions.on_stopp: no such key; did you mean on_stop"),
        ('[actions.notify]\nwebhok = "x"', "actions.notify.webhok: no such key"),
        ('[actions.notify]\nwebhook = "http://example.org"', "actions.notify: .*must be https"),
        ("[actions.adjust]\nlr = 2.0", r"actions.adjust.lr: must be below 1, not 2"),
        ("[actions.snapshot]\nsteps = 0", r"actions.snapshot.steps: must be at least 1, not 0"),
        ('[actions.command]\nargv = ["./none.sh"]', "actions.command: .*none.sh"),
        ("[actions.command]\nargv = []", "actions.command: argv: must not be empty"),
    ],
)
def test_an_experiment_file_is_checked(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "train.py").touch()
    file = tmp_path / "experiment.toml"
    head = '[run]\nname = "x"\ncommand = ["python", "train.py"]\n[actions]\n'
    file.write_text(head + text)
    with pytest.raises(ConfigError, match=message):
        load_experiment(file)


def test_an_invalid_journal_is_not_overwritten(tmp_path: Path) -> None:
    LocalStorage(tmp_path).put(actions_key("all"), [b"nonsense\n"])
    with pytest.raises(CorruptData, match=r"actions/all\.jsonl: not a valid journal of actions"):
        Journal(LocalStorage(tmp_path), "all")
