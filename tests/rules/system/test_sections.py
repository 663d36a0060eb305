"""Ranks that hang before the first step and after the last one, and others that only take long."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from vinedresser import open_run
from vinedresser.capture.attach.launching import attach_environment
from vinedresser.infra.supervise.launcher import prepare_run, start, wait_for_exit
from vinedresser.objects import LocalStorage
from vinedresser.processes import this_process
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.finding import Finding
from vinedresser.store.records import ExitRecord, LaunchRecord, StopRecord, new_run, write_first

pytestmark = pytest.mark.thorough

# Waits for the other rank, in a file that is called like torch's; loading torch takes seconds.
COLLECTIVE = """
import os, pathlib, time
def barrier(name):
    rank = int(os.environ["RANK"])
    pathlib.Path(f"{name}-{rank}").touch()
    while not pathlib.Path(f"{name}-{1 - rank}").exists():
        time.sleep(0.005)
"""
TRAINING = """
import importlib.util, os, sys, time
from vinedresser.capture import Hook
path = "site-packages/torch/distributed/distributed_c10d.py"
spec = importlib.util.spec_from_file_location("collective", path)
collective = importlib.util.module_from_spec(spec)
spec.loader.exec_module(collective)
section, what = sys.argv[1:]
def take_long():
    time.sleep(600)
def work():
    until = time.monotonic() + 5
    while time.monotonic() < until:
        pass
def at(here):
    if section == here and os.environ["RANK"] == "1":
        take_long() if what == "hangs" else work()
    collective.barrier(here)
at("start")
hook = Hook()
for step in range(5):
    hook.step(loss=1.0)
at("end")
hook.close()
at("closed")
"""
RULES = {"stalled_training": {"seconds": 2.0}}


def judged(tmp_path: Path, section: str, what: str, steps: int | None) -> list[Finding]:
    """Return the findings of two ranks; stop them at the first one."""
    package = tmp_path / "site-packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package / "distributed_c10d.py").write_text(COLLECTIVE, encoding="utf-8")
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAINING), encoding="utf-8")
    command = [sys.executable, "train.py", section, what]
    owner = asdict(this_process())
    launch = LaunchRecord(command, str(tmp_path), attach_environment(), owner, grace=0.2, ranks=2)
    directory = tmp_path / "run"
    record = replace(new_run("run"), total_steps=steps)
    prepare_run(directory, record, launch)
    supervisor = start(directory)

    def stop(_: Finding) -> None:
        write_first(LocalStorage(directory), StopRecord("person", "it hangs", 0.0))

    rules = rules_from_table(RULES)
    found = judge(open_run(directory), rules, live=True, on_finding=stop)
    supervisor.wait()
    assert isinstance(wait_for_exit(directory, 60), ExitRecord)
    return list(found)


def test_a_rank_that_hangs_before_the_first_step_is_named(tmp_path: Path) -> None:
    [found] = judged(tmp_path, "start", "hangs", None)
    assert (found.severity, found.evidence["section"], found.step) == ("warning", "start", 0)
    assert (found.rank, found.evidence["missing"]) == (1, [1])
    assert found.evidence["ranks"]["1"] == "is at train.py:10 in take_long"
    [again] = judge(open_run(tmp_path / "run"), rules_from_table(RULES))
    assert (again.seen, again.rank, again.severity) == (found.seen, 1, found.severity)


@pytest.mark.parametrize(("section", "steps"), [("end", 5), ("closed", None)])
def test_a_training_that_is_done_is_no_fault_if_its_script_hangs(
    section: str, steps: int | None, tmp_path: Path
) -> None:
    [found] = judged(tmp_path, section, "hangs", steps)
    assert (found.severity, found.evidence["section"]) == ("info", "end")
    assert "take_long" in found.evidence["ranks"]["1"]


@pytest.mark.parametrize(("section", "steps"), [("start", None), ("end", 5), ("closed", None)])
def test_what_works_before_and_after_the_steps_may_take_long(
    section: str, steps: int | None, tmp_path: Path
) -> None:
    assert judged(tmp_path, section, "works", steps) == []
