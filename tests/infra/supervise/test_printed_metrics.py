"""Metrics that programs print are values of their run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vinedresser.capture.attach.launching import attach_environment
from vinedresser.infra.supervise.launcher import start, wait_for_exit
from vinedresser.store.reading.reader import Run, open_run

Prepared = Callable[..., Path]
Launched = Callable[..., tuple[Path, object]]
Eventually = Callable[[Callable[[], object]], None]

METRICS = {"acc": r"acc: (\S+)", "loss": r"loss: (\S+)"}
Points = list[tuple[int, float]]


def values(directory: Path) -> dict[str, Points]:
    """Return the evaluated steps and values of each metric."""
    return points(open_run(directory))


def points(run: Run) -> dict[str, Points]:
    run.refresh()
    found = run.scalars("metrics", mode="eval")
    return {
        name.removeprefix("metrics/"): list(
            zip(found[name].steps.tolist(), found[name].values.tolist(), strict=True)
        )
        for name in found
    }


def run(directory: Path) -> dict[str, Points]:
    start(directory).wait()
    record = wait_for_exit(directory, 60)
    assert record is not None
    assert record.cause == "finished"
    return values(directory)


def captured(prepared: Prepared, code: str, **options: object) -> Path:
    """Prepare a run of a Python script whose trainings are captured."""
    environment = attach_environment({})
    argv = [sys.executable, "run.py"]
    return prepared(code, argv=argv, environment=environment, metrics=METRICS, **options)


def test_any_program_has_them(prepared: Prepared) -> None:
    program = r"""
        echo 'acc: 0.25 loss: 1.5'; echo 'acc: none'; echo 'loss: 1.25' >&2; printf 'acc: 0.5'
    """
    directory = prepared(argv=["sh", "-c", program], metrics=METRICS)
    found = run(directory)
    assert sorted(value for _, value in found["acc"]) == [0.25, 0.5]
    assert sorted(value for _, value in found["loss"]) == [1.25, 1.5]
    # Each line with a metric is a step.
    assert sorted({step for steps in found.values() for step, _ in steps}) == [0, 1, 2]
    assert open_run(directory).steps().tolist() == []


def test_they_are_there_while_the_program_runs(launched: Launched, eventually: Eventually) -> None:
    code = "import time\nprint('acc: 0.5', flush=True)\ntime.sleep(600)"
    directory, _ = launched(code, metrics=METRICS)
    eventually(lambda: (directory / "run.json").exists() and values(directory).get("acc"))


def test_a_script_without_a_training_keeps_their_order(prepared: Prepared) -> None:
    code = """
import sys
for number in range(3):
    print("acc:", number / 4)
sys.stderr.write("acc: 1.0\\n")
print("\\rloss: 9\\rloss: 2")
sys.exit(0)
"""
    found = run(captured(prepared, code))
    assert found["acc"] == [(0, 0.0), (1, 0.25), (2, 0.5), (3, 1.0)]
    assert found["loss"] == [(4, 2.0)]


@pytest.mark.thorough
def test_a_captured_training_numbers_them_by_its_steps(prepared: Prepared) -> None:
    code = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("acc: 0")
for step in range(6):
    loss = model(torch.ones(4, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 3 == 2:
        print("acc:", step)
"""
    directory = captured(prepared, code)
    assert run(directory)["acc"] == [(0, 0.0), (3, 2.0), (6, 5.0)]
    assert open_run(directory).steps().tolist() == [*range(6)]
    assert not (directory.parent / "run.2").exists()


@pytest.mark.parametrize("attach", [False, True])
def test_only_the_lines_of_rank_0_count(prepared: Prepared, *, attach: bool) -> None:
    code = "import os\nprint('acc:', os.environ['RANK'])"
    environment = attach_environment({}) if attach else {}
    argv = [sys.executable, "run.py"]
    directory = prepared(code, argv=argv, environment=environment, ranks=2, metrics=METRICS)
    assert run(directory) == {"acc": [(0, 0.0)]}


def test_a_dead_reader_harms_nobody(launched: Launched, eventually: Eventually) -> None:
    code = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)"
    directory, supervisor = launched(code, metrics=METRICS)
    pid = getattr(supervisor, "pid")  # noqa: B009
    children = Path(f"/proc/{pid}/task/{pid}/children")

    def readers() -> list[int]:
        found = map(int, children.read_text().split())
        name = b"vinedresser.capture.attach.printed_metrics"
        return [one for one in found if name in Path(f"/proc/{one}/cmdline").read_bytes()]

    eventually(readers)
    os.kill(readers()[0], 9)
    (directory.parent / "go").touch()
    record = wait_for_exit(directory, 60)
    assert record is not None
    assert record.cause == "finished"


def test_a_damaged_record_does_not_harm_the_script(prepared: Prepared) -> None:
    directory = captured(prepared, "print('acc: 0.5')")
    path = directory / "launch.json"
    path.write_text(path.read_text().replace(r"acc: (\\S+)", "acc: ("))
    assert run(directory) == {}
    assert "acc: 0.5" in (directory / "log.txt").read_text()


def test_lines_of_all_threads_count(prepared: Prepared) -> None:
    code = """
import threading
def work(number):
    for step in range(50):
        print(f"acc: {number}.{step:02}\\n", end="")
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for one in threads: one.start()
for one in threads: one.join()
"""
    found = run(captured(prepared, code))
    assert len(found["acc"]) == 200
    assert len({value for _, value in found["acc"]}) == 200
