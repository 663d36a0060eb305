"""Judges that judge one run after the other: the same findings, and no run in another's way."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import psutil
import pytest

from tests.children import children_of
from tests.waiting import until
from vinedresser.errors import VinedresserError
from vinedresser.objects import LocalStorage
from vinedresser.store.reading.reader import open_run
from vinedresser.store.writing.writer import RunWriter
from vinedresser.tasks.lifecycle.judging import JudgeFailed, rules_key, run_judge
from vinedresser.tasks.lifecycle.supervision import side_by_side
from vinedresser.testing.runs import end_run, start_run, step_record

NONFINITE = {"nonfinite": {"severity": "warning"}}


def standing() -> list[psutil.Process]:
    """Return the judges of this process that wait or judge."""
    return children_of("vinedresser.rules.judge_server")


def judged(run: Path, rules: object = NONFINITE) -> None:
    """Judge a run that has been made."""
    LocalStorage(run).put(rules_key("all"), [json.dumps({"rules": rules}).encode()])
    run_judge(run, "all", location=run)


def make(run: Path, *, over: bool = True) -> Path:
    """Make a run that becomes NaN at its fifth step."""
    start_run(run)
    writer = RunWriter(LocalStorage(run), 0)
    for step in range(10):
        writer.add(step_record(step, scalars={"losses/a": float("nan") if step == 5 else 1.0}))
    writer.close()
    if over:
        end_run(run)
    return run


def findings(run: Path) -> list[tuple[str, int]]:
    return [(finding.rule, finding.step) for finding in open_run(run).findings()]


def test_one_process_judges_run_after_run(tmp_path: Path) -> None:
    judged(make(tmp_path / "first"))
    before = {one.pid for one in standing()}
    for name in ("second", "third"):
        judged(make(tmp_path / name))
        assert findings(tmp_path / name) == findings(tmp_path / "first") == [("nonfinite", 5)]
    assert {one.pid for one in standing()} == before != set()


@pytest.mark.thorough
def test_a_judge_has_the_environment_of_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(make(tmp_path / "first"))
    # Such as the credentials of an object store.
    monkeypatch.setenv("VINEDRESSER_TEST_MARK", "new")
    judged(make(tmp_path / "second"))
    assert [one.environ()["VINEDRESSER_TEST_MARK"] for one in standing()] == ["new"]


@pytest.mark.thorough
def test_the_linear_algebra_of_a_judge_uses_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    judged(make(tmp_path / "built-in"))
    # One judges, one watches the parent; a thread that has ended may take a moment to be gone.
    until(lambda: [one.num_threads() for one in standing()] == [2])
    file = tmp_path / "own.py"
    file.write_text(
        "import os, threading\n"
        "from vinedresser.rules.base import Rule\n"
        "class Own(Rule):\n"
        "    needs = ()\n"
        "    def update(self, step):\n"
        "        print(len(os.listdir('/proc/self/task')) - threading.active_count())\n"
    )
    judged(make(tmp_path / "own"), {f"{file}:Own": {}})
    # A pool of threads would be there at every step.
    assert "0" in (tmp_path / "own" / "rules" / "all.log").read_text().split()


@pytest.mark.thorough
def test_a_run_that_goes_on_keeps_no_other_waiting(tmp_path: Path) -> None:
    long = make(tmp_path / "long", over=False)
    beside = threading.Thread(target=judged, args=(long,))
    beside.start()
    until((long / "waiting.json").exists)
    judged(make(tmp_path / "short"))
    assert findings(tmp_path / "short") == [("nonfinite", 5)]
    assert beside.is_alive()
    end_run(long)
    beside.join(60)
    assert findings(long) == [("nonfinite", 5)]


@pytest.mark.thorough
def test_judges_that_are_killed_are_replaced(tmp_path: Path) -> None:
    judged(make(tmp_path / "before"))
    for idle in standing():
        idle.kill()
    run = make(tmp_path / "run", over=False)
    failures: list[BaseException] = []

    def judge() -> None:
        try:
            judged(run)
        except JudgeFailed as error:
            failures.append(error)

    beside = threading.Thread(target=judge)
    beside.start()
    until(lambda: findings(run))
    (at_work,) = standing()
    at_work.kill()
    at_work.wait(60)
    end_run(run)
    beside.join(60)
    assert failures == []
    assert findings(run) == [("nonfinite", 5)]


@pytest.mark.thorough
def test_a_rule_of_ones_own_is_left_nothing_by_the_run_before(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from vinedresser.rules.base import Rule\n"
        "SEEN = []\n"
        "class Own(Rule):\n"
        "    needs = ()\n"
        "    def update(self, step):\n"
        "        SEEN.append(step.step)\n"
        "        print(len(SEEN))\n"
    )
    for name in ("first", "second"):
        judged(make(tmp_path / name), {f"{file}:Own": {}})
        log = (tmp_path / name / "rules" / "all.log").read_text()
        assert log.split() == [str(number) for number in range(1, 11)]


@pytest.mark.thorough
def test_wrong_settings_are_named_and_the_next_run_is_judged(tmp_path: Path) -> None:
    with pytest.raises(JudgeFailed, match=r"wrong.*group all ended with code 2.*nonfinite\.when"):
        judged(make(tmp_path / "wrong"), {"nonfinite": {"when": 3}})
    judged(make(tmp_path / "right"))
    assert findings(tmp_path / "right") == [("nonfinite", 5)]


def test_side_by_side_sees_all_to_their_end() -> None:
    done = []

    def fail(word: str) -> None:
        raise VinedresserError(word)

    with pytest.raises(VinedresserError, match="one; two"):
        side_by_side([lambda: fail("one"), lambda: done.append(1), lambda: fail("two")])
    with pytest.raises(ZeroDivisionError):
        side_by_side([lambda: done.append(2), lambda: done.append(1 // 0)])
    side_by_side([lambda: done.append(3)])
    assert done == [1, 2, 3]
