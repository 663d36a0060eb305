"""The model of a round in a script, and the command that starts it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.pruning.rounds import functions
from tests.waiting import until
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.errors import PruningError
from vinedresser.pruning import fine_tuning, load, prune
from vinedresser.pruning.folders import PRUNED, TUNED, TUNING, round_folder
from vinedresser.pruning.rounds.round_run import fine_tune_by_command
from vinedresser.pruning.saving import save_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a round whose model is pruned and not yet fine-tuned."""
    model = functions.network()
    functions.pretrain(model)
    save_model(model, [], None, round_folder(tmp_path, 0) / TUNED)
    pruned = prune(model, functions.example(), 4, criterion="l1")
    save_model(pruned.model, pruned.plans, pruned.proof, round_folder(tmp_path, 1) / PRUNED)
    return round_folder(tmp_path, 1)


def fine_tune(folder: Path, script: str) -> torch.nn.Module:
    """Fine-tune the model of a round by a shell script; return it."""
    model = load(folder / PRUNED, functions.network)
    fine_tune_by_command(["sh", "-c", script], model, folder, "finetune.sh")
    return model


def test_a_script_loads_the_pruned_model_and_its_teacher(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINEDRESSER_ROUND", str(folder))
    model = fine_tuning.load(functions.network)
    pruned = load(folder / PRUNED, functions.network)
    assert all(map(torch.equal, model.parameters(), pruned.parameters()))
    teacher, original = fine_tuning.load_teacher(functions.network), functions.network()
    functions.pretrain(original)
    assert all(map(torch.equal, teacher.parameters(), original.parameters()))


def test_the_last_weights_that_a_script_saves_are_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VINEDRESSER_ROUND", str(folder))
    model = fine_tuning.load(functions.network)
    for value in (1.0, 2.0):
        with torch.no_grad():
            next(model.parameters()).fill_(value)
        fine_tuning.save(model)
    kept = folder.parent / "kept"
    (folder / TUNING).rename(kept)
    tuned = fine_tune(folder, f"cp -r {kept} $VINEDRESSER_ROUND/tuning")
    assert all(map(torch.equal, tuned.parameters(), model.parameters()))
    assert not (folder / TUNING).exists()


def test_without_a_round_there_is_nothing_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VINEDRESSER_ROUND", raising=False)
    calls: list[Callable[[], object]] = [
        lambda: fine_tuning.load(functions.network),
        lambda: fine_tuning.load_teacher(functions.network),
        lambda: fine_tuning.save(functions.network()),
    ]
    for call in calls:
        with pytest.raises(PruningError, match="VINEDRESSER_ROUND is not set"):
            call()


def test_what_a_script_saves_is_checked(folder: Path) -> None:
    with pytest.raises(PruningError, match=r"finetune\.sh: ended without a saved model: call"):
        fine_tune(folder, "true")
    # Of an earlier try that was killed.
    save_model(load(folder / PRUNED, functions.network), [], None, folder / TUNING)
    with pytest.raises(PruningError, match="ended without a saved model"):
        fine_tune(folder, "true")
    other = folder.parent / "round-0" / TUNED
    with pytest.raises(
        PruningError, match=r"finetune\.sh: saved a model that is not the pruned one: .*0\.bias"
    ):
        fine_tune(folder, f"cp -r {other} $VINEDRESSER_ROUND/tuning")
    script = "mkdir $VINEDRESSER_ROUND/tuning; mkfifo $VINEDRESSER_ROUND/tuning/weights.safetensors"
    with pytest.raises(PruningError, match=r"cannot be read: .* a FIFO, not a file"):
        fine_tune(folder, script)


def test_the_end_of_the_command_is_that_of_the_round(folder: Path) -> None:
    for script, code in (("exit 7", 7), ("kill -9 $$", 128 + signal.SIGKILL)):
        with pytest.raises(SystemExit) as ended:
            fine_tune(folder, script)
        assert ended.value.code == code


def test_a_request_to_stop_reaches_the_command(folder: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    ready, told = folder / "ready", folder / "told"

    def ask() -> None:
        until(ready.exists, "the command")
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    script = f'trap "touch {told}; exit 0" TERM; touch {ready}; while true; do sleep 0.01; done'
    with pytest.raises(TrainingStopped) as ended:
        fine_tune(folder, script)
    asking.join()
    assert ended.value.code == 128 + signal.SIGTERM
    assert told.exists()
    assert signal.getsignal(signal.SIGTERM) == before
