"""Whatever is in place of a file of a store: nothing is followed or hangs, one clear error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import nn

from vinedresser.errors import VinedresserError
from vinedresser.explain.alerts.baseline import read_sample
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.infra.services.tracking.artifacts import check_artifacts
from vinedresser.infra.services.tracking.client import connected
from vinedresser.infra.supervise.relay.blocks import blocks
from vinedresser.objects import LocalStorage
from vinedresser.objects.file_lock import is_file_locked
from vinedresser.objects.files import folder_below
from vinedresser.pruning import saving
from vinedresser.pruning.folders import round_folder
from vinedresser.pruning.rounds.loading import load_weights
from vinedresser.pruning.weights import read_tensors
from vinedresser.rules.worker import judge_run
from vinedresser.store.records import StopRecord, read_record, run_lock
from vinedresser.sweeps.journal import SweepJournal
from vinedresser.tasks.monitoring.records import explanation_folder, life_folder, lives_in
from vinedresser.tasks.process_lock import process_lock

VICTIM = b'{"by": "rule", "reason": "", "time": 0.0}\npart of a line'
KINDS = ("link", "dangling", "fifo", "folder", "device")


class Opener(NamedTuple):
    """Something that opens a file of a store.

    Attributes:
        name: the file, below a folder of the store.
        call: opens it, given the folder.
    """

    name: str
    call: Callable[[Path], object]


def lock(folder: Path) -> None:
    with process_lock(folder / "lock", "pruning"):
        pass


def database(folder: Path) -> None:
    with connected(f"sqlite:///{folder}/mlflow.db"):
        pass


def refuse_rules(folder: Path) -> None:
    if judge_run(str(folder / "none"), "g", folder / "g.json") == 2:
        raise VinedresserError("g.json: as the process has told")


OPENERS = {
    "journal": Opener("journal.log", lambda folder: SweepJournal(folder / "journal.log").close()),
    "lock of a pruning": Opener("lock", lock),
    "look at a lock": Opener("lock", lambda folder: is_file_locked(folder / "lock")),
    "lock of a run": Opener("supervisor.lock", run_lock.acquire),
    "lock of the database": Opener(
        "mlflow.db.lock",
        lambda folder: prepare_tracking(f"sqlite:///{folder}/mlflow.db", "x", timeout=1.0),
    ),
    "database": Opener("mlflow.db", database),
    "log of the database": Opener("mlflow.db-wal", database),
    "record": Opener("stop.json", lambda folder: read_record(LocalStorage(folder), StopRecord)),
    "rules": Opener("g.json", refuse_rules),
    "arrays": Opener("a.safetensors", lambda folder: read_tensors(folder / "a.safetensors", {})),
    "state dict": Opener("a.pt", lambda folder: load_weights(nn.Linear(1, 1), folder / "a.pt")),
    "weights of Keras": Opener(
        "a.weights.h5", lambda folder: load_weights(None, folder / "a.weights.h5")
    ),
    "saved model": Opener(
        "weights.safetensors", lambda folder: saving.load(folder, lambda: nn.Linear(1, 1))
    ),
    "sample of a baseline": Opener("inputs.safetensors", read_sample),
    "blocks of the relay": Opener("log.txt", lambda folder: list(blocks(folder, "log.txt"))),
    "artifact": Opener("a.html", lambda folder: check_artifacts("", {"a": folder / "a.html"})),
}


def replace(path: Path, kind: str, victim: Path) -> None:
    """Put something else in place of a file."""
    match kind:
        case "link":
            path.symlink_to(victim)
        case "dangling":
            path.symlink_to(victim.with_name("created"))
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(60)
def test_nothing_but_a_file_is_opened(
    tmp_path: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    opener = OPENERS[name]
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (victim := elsewhere / "victim").write_bytes(VICTIM)
    (folder := tmp_path / "store").mkdir()
    if opener.name == "mlflow.db-wal":
        (folder / "mlflow.db").touch()
    replace(folder / opener.name, kind, victim)
    with pytest.raises(VinedresserError) as raised:
        opener.call(folder)
    says = str(raised.value) + capsys.readouterr().err
    assert opener.name in says
    assert [path.name for path in elsewhere.iterdir()] == ["victim"]
    assert victim.read_bytes() == VICTIM


FOLDERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "sweep": ("digits", lambda store: folder_below(store, "digits")),
    "round": ("models/round-1", lambda store: round_folder(store, 1)),
    "model": ("models/round-1/tuned", lambda store: round_folder(store, 1)),
    "life": ("life-1", lambda store: life_folder(store, 1)),
    "explanation": ("explanations", lambda store: explanation_folder(store, "0" * 32)),
    "record": ("findings", lambda store: LocalStorage(store).put("findings/g.jsonl", [b"{}"])),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_no_folder_of_a_store_is_a_link(tmp_path: Path, name: str) -> None:
    place, call = FOLDERS[name]
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (store := tmp_path / "store").mkdir()
    (store / place).parent.mkdir(parents=True, exist_ok=True)
    (store / place).symlink_to(elsewhere)
    with pytest.raises(VinedresserError, match=f"{place.rpartition('/')[2]}: a symbolic link"):
        call(store)
    assert lives_in(store) == []
    assert list(elsewhere.iterdir()) == []
