"""The run of a hook, its record and its exit record."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from vinedresser.capture import CaptureConfig, Collection, Hook, SaveConfig, open_run
from vinedresser.errors import AlreadyARun, ConfigError, NotARun, StoreError
from vinedresser.objects import LocalStorage
from vinedresser.store.records import ExitRecord, RunRecord, read_record, write_record


def exit_record(path: Path) -> ExitRecord:
    record = read_record(LocalStorage(path), ExitRecord)
    assert record is not None
    return record


def one_step(hook: Hook) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.watch(model, optimizer=optimizer)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()


def test_the_run_is_described(tmp_path: Path) -> None:
    collections = {"gradients": SaveConfig(every=20, reductions=("l2",))}
    parameters = {"lr": 0.1, "layers": [1, 2], "device": torch.device("cpu")}
    with Hook(
        tmp_path / "digits-1", collections=collections, parameters=parameters, total_steps=9
    ) as hook:
        one_step(hook)
    info = open_run(tmp_path / "digits-1").info
    assert (info.name, info.total_steps, info.framework) == ("digits-1", 9, "torch")
    assert info.parameters == {"lr": 0.1, "layers": [1, 2], "device": "cpu"}
    assert info.versions["torch"] == torch.__version__
    assert set(info.versions) == {"python", "numpy", "vinedresser", "torch"}
    config = CaptureConfig.from_json(info.capture)
    assert config == CaptureConfig.of(collections).with_defaults()
    assert info.capture_digest == config.digest()


def test_a_run_is_never_overwritten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for value in range(3):
        with Hook(tmp_path / "run") as hook:
            hook.metric("value", value)
    assert hook.path == str(tmp_path / "run-3")
    assert hook.problems == []
    for value, name in enumerate(("run", "run-2", "run-3")):
        run = open_run(tmp_path / name)
        assert run.info.name == name
        assert run.scalars("metrics")["metrics/value"].values.tolist() == [value]
    assert caplog.messages == [
        f"{tmp_path}/run already holds a run; this one is in {tmp_path}/run-{number}"
        for number in (2, 3)
    ]
    with pytest.raises(AlreadyARun, match="already holds a run"):
        Hook(tmp_path / "run", strict=True)


def test_a_run_that_cannot_be_created_ends_no_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with Hook(tmp_path / "file" / "run") as hook:
        one_step(hook)
    (problem,) = hook.problems
    assert "nothing is captured" in problem
    assert str(tmp_path / "file") in problem
    assert capfd.readouterr().err == f"vinedresser: {problem}\n"
    with pytest.raises(StoreError, match=str(tmp_path / "file")):
        Hook(tmp_path / "file" / "run", strict=True)


def test_a_path_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"Hook\('runs/name'\)"):
        Hook()


def launch(path: Path, monkeypatch: pytest.MonkeyPatch, config: CaptureConfig) -> None:
    """Prepare a run like a launcher."""
    record = RunRecord("0" * 32, "launched", 0.0, capture=config.to_json(), code="abc")
    write_record(LocalStorage(path), record)
    monkeypatch.setenv("VINEDRESSER_RUN", str(path))
    monkeypatch.setenv("VINEDRESSER_RUN_ID", record.id)


def test_a_launched_program_writes_to_its_run_and_captures_what_both_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {"weights": SaveConfig(every=3), "losses": SaveConfig(every=5)}
    launch(tmp_path / "launched", monkeypatch, CaptureConfig.of(asked))
    with (
        caplog.at_level(logging.INFO),
        Hook(
            tmp_path / "own", collections={"weights": SaveConfig(every=1, reductions=("l2",))}
        ) as hook,
    ):
        one_step(hook)
    assert "not " + str(tmp_path / "own") in caplog.text
    assert not (tmp_path / "own").exists()
    run = open_run(tmp_path / "launched")
    assert (run.info.name, run.info.code, run.info.framework) == ("launched", "abc", "torch")
    assert run.tensor("weights/weight").steps().tolist() == [0]
    assert run.tensor("weights/weight").reductions == ("l2",)
    config = CaptureConfig.from_json(run.info.capture)
    # The launcher's config of losses remains; defaults apply to missing collections only.
    assert [save.every for save in config.collections["losses"].saves] == [5]
    assert [save.every for save in config.collections["metrics"].saves] == [1]
    # The supervisor writes the exit record.
    assert read_record(run.storage, ExitRecord) is None


def test_a_launched_program_needs_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VINEDRESSER_RUN", str(tmp_path / "away"))
    with pytest.raises(NotARun, match=r"no run\.json"):
        Hook(strict=True)
    with Hook() as hook:
        assert "no run.json; training continues" in hook.problems[0]


def test_a_second_hook_of_a_launched_program_has_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(tmp_path / "run", monkeypatch, CaptureConfig())
    with Hook() as first, Hook() as second:
        first.metric("hook", 1)
        second.metric("hook", 2)
    for number, name in enumerate(("run", "run.2"), 1):
        values = open_run(tmp_path / name).scalars("metrics")["metrics/hook"].values
        assert values.tolist() == [number]


def test_ranks_write_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    # The program is run again: its ranks find the new run.
    for name in ("run", "run-2", "run-3"):
        hooks = []
        for rank in ("0", "1"):
            monkeypatch.setenv("RANK", rank)
            hooks.append(Hook(tmp_path / "run"))
            hooks[-1].metric("rank", int(rank))
        for hook in hooks:
            hook.close()
        run = open_run(tmp_path / name)
        assert (run.ranks, run.info.world_size) == ((0, 1), 2)
        for number in run.ranks:
            assert run.scalars("metrics", rank=number)["metrics/rank"].values.tolist() == [number]


RANK_1 = """
import sys
from vinedresser.capture import Hook
print("started", flush=True)
if len(sys.argv) > 2:
    input()
print(Hook(sys.argv[1]).path)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("late", [False, True])
def test_a_rank_joins_the_run_of_its_program(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for rank 0, or comes when that has ended; an earlier program's run is not it."""
    Hook(tmp_path / "run").close()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    command = [sys.executable, "-c", RANK_1, str(tmp_path / "run"), *(["late"] if late else [])]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "started\n"
        monkeypatch.setenv("RANK", "0")
        first = Hook(tmp_path / "run")
        if late:
            first.close()
        path = other.communicate("\n", timeout=60)[0].strip()
        first.close()
    assert path == first.path == str(tmp_path / "run-2")


def test_an_invalid_rank_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VINEDRESSER_RANK", "first")
    with pytest.raises(ConfigError, match="VINEDRESSER_RANK=first"):
        Hook(tmp_path / "run")


def test_finished(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        one_step(hook)
    record = exit_record(tmp_path / "run")
    assert (record.cause, record.code, record.last_step) == ("finished", 0, 0)
    assert open_run(tmp_path / "run").status.state == "finished"


@pytest.mark.parametrize(
    ("error", "cause", "code", "reason"),
    [
        (ValueError("bad\nbatch"), "crashed", 1, "ValueError: bad\nbatch"),
        (KeyboardInterrupt(), "killed", 130, "ended by SIGINT"),
        (SystemExit(3), "crashed", 3, "exit code 3"),
        (SystemExit("no data"), "crashed", 1, "no data"),
        (SystemExit(), "finished", 0, "the program ended without an error"),
    ],
    ids=["error", "interrupt", "code", "message", "exit"],
)
def test_the_block_ends_with_an_error(
    error: BaseException, cause: str, code: int, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(type(error)), Hook(tmp_path / "run"):
        raise error
    record = exit_record(tmp_path / "run")
    assert (record.cause, record.code, record.reason) == (cause, code, reason)
    assert record.last_step is None


@pytest.mark.thorough
def test_an_uncaught_error_is_a_crash_with_its_traceback_shown(tmp_path: Path) -> None:
    program = (
        "import sys; from vinedresser.capture import Hook\n"
        "hook = Hook(sys.argv[1]); hook.metric('a', 1.0)\n"
        "raise RuntimeError('shapes differ')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "run"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("RuntimeError: shapes differ\n")
    record = exit_record(tmp_path / "run")
    assert (record.cause, record.reason) == ("crashed", "RuntimeError: shapes differ")
    # Captured data is complete although the hook was not closed.
    run = open_run(tmp_path / "run")
    assert run.scalars("metrics")["metrics/a"].values.tolist() == [1.0]


def test_a_hook_without_a_model_loads_no_framework(tmp_path: Path) -> None:
    program = (
        "import sys; from vinedresser.capture import Hook\n"
        "hook = Hook(sys.argv[1]); hook.save('losses/x', 1.0); hook.close()\n"
        "print({'torch', 'safetensors', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "run"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 3}, r"cannot watch a builtins\.int"),
        ({"model": nn.Linear(1, 1), "loss": nn.functional.mse_loss}, r"hook\.loss\(mse_loss\)"),
        ({"model": nn.Linear(1, 1), "optimizer": "sgd"}, "not a torch.optim.Optimizer"),
    ],
    ids=["model", "loss", "optimizer"],
)
def test_unsupported_arguments_of_watch_are_named(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with Hook(tmp_path / "run") as hook, pytest.raises(ConfigError, match=message):
        hook.watch(**arguments)


def test_a_second_model_needs_a_name(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "run").watch(nn.Linear(1, 1))
    with pytest.raises(ConfigError, match="each additional model a unique name"):
        hook.watch(nn.Linear(1, 1))
    hook.close()
    hook.metric("after", 1.0)
    hook.close()
    assert not open_run(tmp_path / "run").scalars()


def test_an_invalid_collection_is_named_before_the_run_is_created(tmp_path: Path) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"gradient": SaveConfig()}, "did you mean gradients"),
        ({"weights": Collection(regex="conv")}, "weights: a built-in collection takes no regex"),
        ({"weights": 7}, "weights: save = 7 is not a SaveConfig"),
    ]
    for collections, message in wrong:
        with pytest.raises(ConfigError, match=message):
            Hook(tmp_path / "run", collections=collections)
    with pytest.raises(ConfigError, match="policy = 'wait'"):
        Hook(tmp_path / "run", policy="wait")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_a_closed_hook_leaves_nothing_in_the_model(tmp_path: Path) -> None:
    model, loss = nn.Sequential(nn.Linear(1, 1)), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections={"outputs": SaveConfig(every=1)})
    hook.watch(model, loss, optimizer)
    model(torch.ones(1, 1))
    hook.close()
    for module in (*model.modules(), loss):
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
