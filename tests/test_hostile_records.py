"""Records of strangers: one clear error for each, and nothing but our errors.

`tests/store/test_fuzz.py` damages what a training captures; this, all other files of a store.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.pruning.networks import EXAMPLE, build
from tests.serving.unlimited import UNLIMITED
from tests.store.damaging import other_bytes, other_json, resealed
from tests.sweeps.studies import FINISHED, run, study
from tests.tasks.monitoring.lives import begin_life, record, write_monitor
from vinedresser.capture import Hook
from vinedresser.drift import Baseline, DriftMonitor
from vinedresser.errors import CorruptData, VinedresserError
from vinedresser.explain.alerts.baseline import read_sample
from vinedresser.objects import LocalStorage
from vinedresser.plain_text import visible
from vinedresser.pruning import prune, save
from vinedresser.pruning.rounds.loading import load_weights
from vinedresser.pruning.rounds.round_record import RoundRecord
from vinedresser.pruning.saving import load_with_plans, read_proof
from vinedresser.queries.answer import Answer
from vinedresser.queries.stored.streams import streams
from vinedresser.replay.stepping import replay
from vinedresser.serving import RequestRecorder, RequestStore
from vinedresser.snapshots.reading import list_snapshots, open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings
from vinedresser.store.json_values import parse_json
from vinedresser.store.reading.reader import open_run
from vinedresser.store.records import ControlRecord, read_record, stream_key, write_record
from vinedresser.tasks.config.monitor_file import load_monitor
from vinedresser.tasks.monitoring.arming import current_life

# What other languages, and later versions, write where this one expects a small number.
NUMBERS = ("1" + "0" * 400, "-1" + "0" * 400, "9" * 5_000, "1e999", "NaN", "-Infinity")


ROUNDS = int(os.environ.get("HOSTILE_ROUNDS", "25"))


class Subject:
    """Files of one kind, and everything that reads them.

    Args:
        write: writes them to an empty folder.
        files: globs of the files to damage.
        read: reads them, given the folder.
        lines: each line of a file is JSON of its own.
    """

    def __init__(
        self,
        write: Callable[[Path], object],
        files: tuple[str, ...],
        read: Callable[[Path], object],
        *,
        lines: bool = False,
    ) -> None:
        self.write = write
        self.files = files
        self.read = read
        self.lines = lines


# A sweep.


def write_sweep(folder: Path) -> None:
    one = study(folder / "journal.log", epochs=3, pruner="median")
    for values in ([0.1, 0.2, 0.3], [0.2, 0.3, 0.4], [0.0, 0.0, 0.0], [0.3, 0.1, 0.2]):
        run(one, values)
    one.ask()
    one.close()


def read_sweep(folder: Path) -> None:
    one = study(folder / "journal.log", epochs=3, pruner="median")
    try:
        one.trials()
        one.best()
        one.importance()
        for again in one.again():
            one.report(again.number, 3, 0.5)
            one.tell(again.number, FINISHED, [0.5])
        run(one, [0.1, 0.2, 0.3])
    finally:
        one.close()


# A pruning.


def write_pruning(folder: Path) -> None:
    save(prune(prune(build(), EXAMPLE, 5), EXAMPLE, 3, criterion="l2"), folder)
    fields = {**dict.fromkeys(("number", "removed"), 1), "run": "r", "left": {"a": 1}}
    fields |= dict.fromkeys(("parameters", "macs", "size"), 10)
    fields |= dict.fromkeys(("latency", "original_latency", "before", "figure"), 0.5)
    write_record(LocalStorage(folder), RoundRecord.from_json(fields))


def read_pruning(folder: Path) -> None:
    read_proof(folder)
    found = read_record(LocalStorage(folder), RoundRecord)
    if found is not None:
        assert found.costs
    load_with_plans(folder, build)


# A monitor.


def write_monitoring(folder: Path) -> None:
    life = begin_life(folder)
    record(folder, 120)
    monitor = DriftMonitor(Baseline.load(life.baseline), budget=0.01)
    rows = np.random.default_rng(5).normal(size=(50, 3))
    monitor.update({f"x{place}": rows[:, place] for place in range(3)})
    (folder / "state.json").write_text(json.dumps(monitor.state()), encoding="utf-8")


def read_monitoring(folder: Path) -> None:
    life = current_life(load_monitor(write_monitor(folder)))
    if life is not None:
        try:
            state = parse_json((folder / "state.json").read_bytes())
        except ValueError as error:
            raise CorruptData(str(error)) from error
        baseline = Baseline.load(life.baseline)
        monitor = DriftMonitor.resumed(baseline, state)
        requests, _ = life.requests.after(None, 50)
        monitor.update(requests.columns)


# Requests of a service.


def write_requests(folder: Path) -> None:
    recorder = RequestRecorder(folder, "service", limits=UNLIMITED)
    store = RequestStore(recorder.location)
    recorder.record(np.ones((5, 3)), np.arange(5), [str(one) for one in range(5)])
    assert recorder.flush(60)
    store.add_labels(["1", "2"], [1, 0])
    store.ask_for_inputs("drift-1", ["1"], 1)
    assert recorder.close()


def read_requests(folder: Path) -> None:
    store = RequestStore(folder / "service")
    store.after(None, 100)
    store.labelled()
    store.alert_state("drift-1")
    store.inputs_of(["1"])
    if store.problems:
        raise CorruptData(store.problems[0])


# A training, with snapshots, answers and changes.


def write_training(folder: Path) -> None:
    model, loss_fn, optimizer = parts()
    settings = SnapshotSettings(every=1)
    hook = Hook(folder / "run", guard="nonfinite", snapshots=settings)
    with hook.watch(model, loss=loss_fn, optimizer=optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            loss_fn(model(torch.randn(8, 4)), torch.randn(8, 1)).backward()
            optimizer.step()
    storage = LocalStorage(folder / "run")
    kinds: dict[Any, Any] = {
        "scalar": 0.5,
        "vector": [0.5, 1.0],
        "by": {"a": 0.5},
        "histogram": {"edges": [0.0, 1.0], "counts": [3.0]},
        "confusion": {"classes": ["a"], "counts": [[1.0]]},
        "top": [{"value": 1.0, "at": "a", "step": 1}],
        "image": {"height": 1, "width": 1, "channels": 1, "data": "AA=="},
        "points": {"x": [0.0], "y": [1.0]},
    }
    answers = [
        Answer("loss", "s", "step", place, 0, 1, "train", 0, time.time(), 1, kind, value)
        for place, (kind, value) in enumerate(kinds.items())
    ]
    storage.put(
        stream_key("s", 0, 0), ["".join(f"{answer.to_json()}\n" for answer in answers).encode()]
    )
    change = ControlRecord(1, time.time(), "adjust", "why", "lr", old=[0.1], new=[0.2])
    storage.put(ControlRecord.KEY, [json.dumps(change.to_json()).encode(), b"\n"])


def read_answers(folder: Path) -> None:
    opened = open_run(folder / "run")
    for stream in streams(opened).values():
        stream.to_pandas()
        stream._repr_html_()
        [answer.to_json() for answer in stream]
    opened.controls()
    if problems := opened.damage(opened.status):
        raise CorruptData(problems[0])


def read_snapshots(folder: Path) -> None:
    list_snapshots(LocalStorage(folder / "run"), [])
    for place in sorted((folder / "run" / "snapshots").iterdir()):
        replay(open_snapshot(place), "tests.test_hostile_records:parts")


def parts() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer]:
    """Return what a training consists of."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    return model, nn.MSELoss(), torch.optim.Adam(model.parameters())


# A checkpoint, and a sample of inputs.


def write_weights(folder: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), folder / "a.pt")
    torch.save({"model": nn.Linear(2, 2).state_dict()}, folder / "b.pth")
    storage = LocalStorage(folder)
    from safetensors.numpy import save as packed

    storage.put("inputs.safetensors", [packed({"inputs": np.ones((2, 2))})])
    storage.put("inputs.json", [b"[0, 1]"])


def read_weights(folder: Path) -> None:
    read_sample(folder)
    for name in ("a.pt", "b.pth"):
        load_weights(nn.Linear(2, 2), folder / name)


SUBJECTS = {
    "sweep": Subject(write_sweep, ("journal.log",), read_sweep, lines=True),
    "pruning": Subject(write_pruning, ("*.json",), read_pruning),
    "monitor": Subject(
        write_monitoring,
        ("state.json", "monitors/*/life-1/*.json", "**/baseline/*.json"),
        read_monitoring,
    ),
    "requests": Subject(write_requests, ("service/**/*.json",), read_requests),
    "answers": Subject(
        write_training, ("run/streams/s/0/*", "run/controls.jsonl"), read_answers, lines=True
    ),
    "snapshots": Subject(write_training, ("run/snapshots/*/snapshot.json",), read_snapshots),
    "weights": Subject(write_weights, ("inputs.json",), read_weights),
}
BYTES = {
    "pruning": ("*.safetensors",),
    "monitor": ("**/*.safetensors",),
    "requests": ("service/**/*.safetensors",),
    "snapshots": ("run/snapshots/*/contents.safetensors",),
    "weights": ("*",),
}


def damaged(content: bytes, chance: random.Random, *, lines: bool) -> tuple[bytes, str]:
    """Return JSON with something else in one place, and what that is."""
    if lines:
        rows = content.splitlines()
        place = chance.randrange(len(rows))
        if chance.random() < 0.1:
            rows[place] = chance.choice([b"[]", b"0", b"null", b'"x"', b"{}", b"[" * 5_000])
            done = rows[place][:9].decode()
        else:
            rows[place], done = damaged(rows[place], chance, lines=False)
        return b"\n".join(rows) + b"\n", f"line {place}: {done}"
    numbers = list(re.finditer(rb"(?<=[:,\[])-?\d[\d.e+-]*", content))
    if numbers and chance.random() < 0.2:
        found, number = chance.choice(numbers), chance.choice(NUMBERS)
        changed = content[: found.start()] + number.encode() + content[found.end() :]
        return resealed(changed), f"{number[:9]} at {found.start()}"
    return other_json(content, chance)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns the undamaged files of a subject, which it writes once."""
    written: dict[Callable[[Path], object], Path] = {}

    def original(name: str) -> Path:
        write = SUBJECTS[name].write
        if write not in written:
            written[write] = tmp_path_factory.mktemp(name)
            write(written[write])
        return written[write]

    return original


def attack(
    original: Path,
    copy: Path,
    globs: tuple[str, ...],
    read: Callable[[Path], object],
    change: Callable[[bytes, random.Random], tuple[bytes, str]],
) -> int:
    """Damage a file and read everything, again and again; return how often that was refused."""
    refused = 0
    shutil.copytree(original, copy)
    read(copy)
    shutil.rmtree(copy)
    shutil.copytree(original, copy)
    files = sorted({one for glob in globs for one in copy.glob(glob) if one.is_file()})
    assert files
    chance = random.Random(0)
    for _ in range(ROUNDS):
        path = chance.choice(files)
        changed, done = change(path.read_bytes(), chance)
        path.write_bytes(changed)
        try:
            read(copy)
        except VinedresserError as error:
            refused += visible(str(error)) == str(error)
        except BaseException as error:
            error.add_note(f"{path.relative_to(copy)}: {done}")
            raise
        shutil.rmtree(copy)
        shutil.copytree(original, copy)
    return refused


@pytest.mark.thorough
@pytest.mark.parametrize("name", SUBJECTS)
def test_other_values_are_refused_or_make_sense(
    originals: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    one = SUBJECTS[name]
    change = partial(damaged, lines=one.lines)
    assert attack(originals(name), tmp_path / "copy", one.files, one.read, change)


@pytest.mark.thorough
@pytest.mark.parametrize("name", BYTES)
def test_other_bytes_are_refused(
    originals: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    def change(content: bytes, chance: random.Random) -> tuple[bytes, str]:
        emptied = not content or chance.random() < 0.1
        return (b"", "empty") if emptied else other_bytes(content, chance)

    assert attack(originals(name), tmp_path / "copy", BYTES[name], SUBJECTS[name].read, change)
