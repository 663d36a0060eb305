"""Corrupt files of a run: the reader reports them and never returns wrong values."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastcrc import crc32

from vinedresser.errors import VinedresserError
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import Run, open_run
from vinedresser.store.reading.series import Column
from vinedresser.store.step_record import StepRecord
from vinedresser.store.storage import LocalStorage
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, host_tensor, start_run, step_record

# One manifest and some records behind it.
COMMITS = 104
NAMES = ("weights/a", "outputs/b", "inputs/c")
# What is in place of a value whose checksum is right all the same.
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 7, 2**31, 2**62, 2**63, 2**70, 1.5, -0.0, 1e308, float("nan")),
    *("", "x", "F32", "00000000", [], [0], [-1], [2**40], ["x"], [[]], [[2**40]], [None], {}),
    {"layout": 0},
)


def record_of(step: int) -> StepRecord:
    """Return a step: weights now and then, an output that is mostly the next module's input."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3) + step
    output = host_tensor(values)
    record = step_record(
        step,
        at=1e9 + step,
        scalars={"losses/loss": step / 7},
        reductions={"gradients/a": {"l2": float(step), "min": -1.0}},
    )
    if step % 3 == 0:
        record.tensors["weights/a"] = host_tensor(np.full(4, step, np.int16))
    record.tensors["outputs/b"] = output
    record.tensors["inputs/c"] = output if step % 4 else host_tensor(-values)
    return record


def truth() -> Iterator[StepRecord]:
    """Yield the records of the run."""
    for step in range(COMMITS + 10):
        yield record_of(step)
        if step % 20 == 19:
            yield step_record(
                step, mode="eval", at=1e9 + step, scalars={"losses/loss": -float(step)}
            )


TRUTH = list(truth())
VALUES = {
    (name, record.mode, record.step): tensor.data
    for record in TRUTH
    for name, tensor in record.tensors.items()
}
SCALARS = {(r.mode, r.step, r.scalars["losses/loss"]) for r in TRUTH}
STATISTICS = {(r.step, r.reductions["gradients/a"]["l2"]) for r in TRUTH if r.reductions}


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    start_run(folder, capture={"relus": {"regex": "relu", "save": [{"every": 1}]}})
    storage = LocalStorage(folder)
    writer = RunWriter(storage)
    for record in TRUTH:
        writer.add(record)
        # The first segment has several rows, all others one or two.
        if record.mode == "train" and record.step >= 10:
            writer.flush()
    writer.close()
    finding = Finding("r", "info", 1, 1, "train", 0, "t", "l2", 1.0, 2.0, 0.5, "s", "c", "r")
    storage.put("findings/g.jsonl", [json.dumps(finding.to_json()).encode() + b"\n"])
    end_run(folder)
    assert storage.list("manifests/")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def folder(original: Path) -> Iterator[Path]:
    """A copy that may be damaged; its files are links, and are replaced, never written to."""
    copy = Path(tempfile.mkdtemp()) / "run"
    shutil.copytree(original, copy, copy_function=lambda a, b: Path(b).hardlink_to(a))
    yield copy
    shutil.rmtree(copy.parent)


class Damaging:
    """Damages a file, and heals it again."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._healthy: dict[Path, bytes] = {}
        self._strays: list[Path] = []

    def pick(self, kinds: tuple[str, ...]) -> Path:
        """Return a file of one of these kinds; there is one."""
        while True:
            if found := sorted(self._folder.glob(self._chance.choice(kinds))):
                return self._chance.choice(found)

    def write(self, path: Path, content: bytes | None) -> None:
        self._healthy.setdefault(path, path.read_bytes())
        path.unlink()
        if content is not None:
            path.write_bytes(content)

    def clutter(self) -> str:
        """Add a name that the contract does not know, or put something else in place of a file."""
        folder = self._chance.choice(("segments/0", "index/0", "manifests/0", "heartbeat", "."))
        path = self.pick((f"{folder}/*.*",))
        content = path.read_bytes()
        what = self._chance.choice(["copy", "copy", "link", "dangling", "fifo", "folder"])
        if what == "copy":
            names = (f"{path.name}~", f"{path.name}.6eF3a2C1", f"0{path.name}", "5.json")
            stray = path.with_name(self._chance.choice(names))
            stray.write_bytes(content)
            self._strays.append(stray)
            return f"stray {stray.relative_to(self._folder)}"
        self.write(path, None)
        if what == "fifo":
            os.mkfifo(path)
        elif what == "folder":
            path.mkdir()
        else:
            target = path.with_name("target")
            if what == "link":
                target.write_bytes(content)
                self._strays.append(target)
            path.symlink_to(target)
        return f"delete {path.relative_to(self._folder)} for a {what}"

    def heal(self) -> None:
        for stray in self._strays:
            stray.unlink(missing_ok=True)
        self._strays.clear()
        for path, content in self._healthy.items():
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.write_bytes(content)
        self._healthy.clear()

    def bytes_of(self, path: Path) -> str:
        """Corrupt a file; return a description of the change."""
        content, chance = bytearray(path.read_bytes()), self._chance
        place = chance.randrange(len(content))
        other = chance.choice(sorted(path.parent.iterdir()))
        what = chance.choice(
            ["flip", "cut", "extend", "zero", "swap", "delete", "duplicate", "noise"]
        )
        if what == "flip":
            content[place] ^= 1 << chance.randrange(8)
        elif what == "cut":
            del content[place:]
        elif what == "extend":
            content += chance.randbytes(chance.randrange(1, 100))
        elif what == "zero":
            content[place : place + 64] = bytes(len(content[place : place + 64]))
        elif what == "noise":
            content = bytearray(chance.randbytes(len(content)))
        elif other.is_file() and what in ("swap", "duplicate"):
            theirs = other.read_bytes()
            if what == "swap":
                self.write(other, bytes(content))
            content = bytearray(theirs)
        self.write(path, None if what == "delete" else bytes(content))
        return f"{what} {path.relative_to(self._folder)} at {place}, {other.name}"

    def json_of(self, path: Path) -> str:
        """Replace a value in a JSON file, or leave a key out, with a checksum that is right."""
        document = json.loads(path.read_bytes())
        places: list[tuple[Any, Any]] = []

        def walk(node: Any) -> None:
            keys = node if isinstance(node, dict) else range(len(node))
            for key in keys:
                places.append((node, key))
                if isinstance(node[key], dict | list):
                    walk(node[key])

        walk(document)
        node, key = self._chance.choice(places)
        if isinstance(node, dict) and self._chance.random() < 0.2:
            del node[key]
            what = "nothing"
        else:
            node[key] = self._chance.choice(ODD)
            what = repr(node[key])
        for kind in ("record", "manifest"):
            if kind in document:
                inner = json.dumps(document[kind], separators=(",", ":")).encode()
                sealed = b'{"crc32c":"%08x","%s":%s}' % (crc32.iscsi(inner), kind.encode(), inner)
                self.write(path, sealed)
                break
        else:
            self.write(path, json.dumps(document).encode())
        return f"{what} for {key!r} in {path.relative_to(self._folder)}"


def look_at(run: Run, chance: random.Random, check: Callable[[Any, Any], None]) -> set[Any]:
    """Read a run in every way there is; return what of the truth was had.

    Args:
        run: the run.
        chance: picks the steps that are read one by one.
        check: called with each tensor that was had: which, and its values.
    """
    had: set[Any] = set()

    def tell(key: Any, value: Any) -> None:
        check(key, value)
        had.add(key)

    for name, step in itertools.product(NAMES, chance.sample(range(COMMITS + 12), 3)):
        with suppress(VinedresserError):
            tell((name, "train", step), run.tensor(name).value(step))
    with suppress(VinedresserError):
        list(run.findings())
    assert set(map(type, run.tensor_names())) <= {str}
    for name in NAMES:
        with suppress(VinedresserError):
            view = run.tensor(name)
            assert view.steps().dtype == np.int64
            assert isinstance(view.shape, tuple)
            for step, value in view.values():
                tell((name, "train", step), value)
    frame = run.to_pandas()
    losses = frame[frame.name == "losses/loss"]
    had |= set(zip(losses["mode"], losses["step"], losses["value"], strict=True))
    norms = run.reductions("l2").get("gradients/a", Column.empty("gradients/a"))
    had |= set(zip(norms.steps.tolist(), norms.values.tolist(), strict=True))
    for each in run.follow() if run.status.over else ():
        for name in each.tensor_names:
            with suppress(VinedresserError):
                tell((name, each.mode, each.step), each.tensor(name))
        with suppress(VinedresserError):
            assert set(map(type, each.scalars.values())) <= {float}
    return had


def same_as_truth(key: Any, value: Any) -> None:
    np.testing.assert_array_equal(value, VALUES[key], err_msg=str(key))
    assert value.dtype == VALUES[key].dtype


EVERYTHING = set(VALUES) | SCALARS | STATISTICS
CAPTURED = ("segments/0/*", "index/0/*", "manifests/0/*", "index/0/*0.json", "index/0/*3.json")
RECORDS = ("run.json", "exit.json", "heartbeat/0.json", "findings/g.jsonl")


def hurt_bytes(folder: Path, seed: int, rounds: int, *, clutter: bool = False) -> None:
    """Corrupt stored files: values that are read are right, and lost ones are reported."""
    chance = random.Random(seed)
    damaging = Damaging(folder, chance)
    for _ in range(rounds):
        if clutter:
            done = [damaging.clutter()]
        else:
            done = [damaging.bytes_of(damaging.pick((*CAPTURED, *CAPTURED, *RECORDS)))]
        if not clutter and chance.random() < 0.3:
            with suppress(ValueError):  # it is empty by now
                done.append(damaging.bytes_of(damaging.pick(CAPTURED)))
        begun = time.monotonic()
        try:
            run = open_run(folder)
            had = look_at(run, chance, same_as_truth)
            assert had <= EVERYTHING, done
            # What was committed last leaves no trace when its record is gone.
            assert had == EVERYTHING or run.problems or any("delete index" in one for one in done)
        except VinedresserError:
            assert any(word in " ".join(done) for word in ("run.json", "exit.json")), done
        except BaseException as error:
            error.add_note(f"seed {seed}: {done}")
            raise
        assert time.monotonic() - begun < 20, done
        damaging.heal()
    assert look_at(open_run(folder), chance, same_as_truth) == EVERYTHING


def hurt_json(folder: Path, seed: int, rounds: int) -> None:
    """Have records of another shape: nothing but our errors comes of it, and no tensor is wrong."""
    chance = random.Random(seed)
    damaging = Damaging(folder, chance)
    stored = {value.tobytes() for value in VALUES.values()}

    def known(_key: Any, value: Any) -> None:
        assert value.tobytes() in stored | {b""}

    for _ in range(rounds):
        kinds = ("index/0/*", "manifests/0/*", "index/0/*0.json", *RECORDS)
        done = [damaging.json_of(damaging.pick(kinds))]
        if "index" in done[0]:
            # Its copy would be read else.
            damaging.write(damaging.pick(("manifests/0/*",)), None)
        begun = time.monotonic()
        try:
            look_at(open_run(folder), chance, known)
        except VinedresserError:
            pass
        except BaseException as error:
            error.add_note(f"seed {seed}: {done}")
            raise
        assert time.monotonic() - begun < 20, done
        damaging.heal()


@pytest.mark.parametrize("seed", range(4))
def test_corrupt_bytes_are_detected_and_nothing_else_is_lost(folder: Path, seed: int) -> None:
    hurt_bytes(folder, seed, 15)


@pytest.mark.parametrize("seed", range(4))
def test_strays_and_links_are_never_read(folder: Path, seed: int) -> None:
    hurt_bytes(folder, seed, 15, clutter=True)


@pytest.mark.parametrize("seed", range(4))
def test_records_of_another_shape_are_refused(folder: Path, seed: int) -> None:
    hurt_json(folder, seed, 30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 108))
def test_many_corruptions(folder: Path, seed: int) -> None:
    hurt_bytes(folder, seed, 250)
    hurt_json(folder, seed, 400)
