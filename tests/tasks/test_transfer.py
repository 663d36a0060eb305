"""Runs are copied whole or not at all, and an archive is written only where it is sound."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.cli.command_line import vinedresser
from vinedresser import open_run, open_store
from vinedresser.errors import (
    AlreadyARun,
    ConfigError,
    CorruptData,
    NotARun,
    StillRunning,
    StoreError,
)
from vinedresser.objects import StoreUrl, open_storage
from vinedresser.store.records import PinRecord, TrackingRecord, write_record
from vinedresser.tasks.transfer import copy_run, export_runs, import_runs
from vinedresser.testing.runs import make_run, start_run, step_record

LEFT = {"tracking.json", "pin.json", "supervisor.lock"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run with what belongs to it alone, files of the user's, and all kinds of names."""
    folder = tmp_path / "runs" / "größe 1"
    steps = [
        step_record(step, scalars={"losses/loss": 1 / (1 + step)}, tensors={"weights/a": np.eye(3)})
        for step in range(5)
    ]
    made = make_run(folder, steps)
    write_record(made.storage, TrackingRecord("sqlite:///mlflow.db", "1", "2"))
    write_record(made.storage, PinRecord("the paper", "ann", 1.0))
    made.storage.put("model/weights ü.bin", [os.urandom(100_000)])
    made.storage.put("model/empty", [])
    return folder


def contents(location: Path | StoreUrl) -> dict[str, bytes]:
    storage = open_storage(location)
    return {key: storage.get(key) for key in storage.list("") if key not in LEFT}


def test_a_copy_has_everything_but_what_is_about_the_original(run: Path, tmp_path: Path) -> None:
    copy = copy_run(run, tmp_path / "other")
    assert copy == tmp_path / "other" / "größe 1"
    assert contents(copy) == contents(run)
    assert not LEFT & set(open_storage(copy).list(""))
    assert open_run(copy).steps("train").tolist() == [0, 1, 2, 3, 4]


@pytest.mark.thorough
def test_runs_go_to_an_object_store_and_come_back(run: Path, tmp_path: Path, s3: str) -> None:
    remote = copy_run(run, StoreUrl(s3))
    assert contents(remote) == contents(run)
    export_runs([remote], tmp_path / "remote.zip")
    assert contents(copy_run(remote, tmp_path / "back")) == contents(run)
    assert list(import_runs(tmp_path / "remote.zip", StoreUrl(f"{s3}/again"))) == [
        (StoreUrl(f"{s3}/again/größe 1"), True)
    ]
    assert contents(StoreUrl(f"{s3}/again/größe 1")) == contents(run)


def test_what_is_there_stays(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    copy_run(run, other)
    with pytest.raises(AlreadyARun, match="this run is there already"):
        copy_run(run, other)
    make_run(tmp_path / "elsewhere" / run.name, [step_record(0, scalars={"losses/loss": 9.0})])
    before = contents(other / run.name)
    with pytest.raises(AlreadyARun, match="another run of this name"):
        copy_run(tmp_path / "elsewhere" / run.name, other)
    assert contents(other / run.name) == before
    (tmp_path / "third" / run.name).mkdir(parents=True)
    (tmp_path / "third" / run.name / "thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match="has files, but no run"):
        copy_run(run, tmp_path / "third")
    assert os.listdir(tmp_path / "third" / run.name) == ["thesis.tex"]


def test_what_has_not_ended_is_refused(tmp_path: Path) -> None:
    start_run(tmp_path / "runs" / "going")
    with pytest.raises(StillRunning, match="it has not ended"):
        copy_run(tmp_path / "runs" / "going", tmp_path / "other")
    with pytest.raises(NotARun):
        export_runs([tmp_path / "runs"], tmp_path / "runs.zip")
    assert not (tmp_path / "runs.zip").exists()


# Ends itself when a file with the given name is to be put in its place.
COPY = """
import os, signal, sys
from pathlib import Path
from vinedresser.tasks.transfer import copy_run, import_runs

def end(event, arguments):
    if event in ("os.rename", "os.link") and str(arguments[1]).rpartition("/")[2] == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(end)
source, store = Path(sys.argv[1]), Path(sys.argv[2])
list(import_runs(source, store)) if source.suffix == ".zip" else copy_run(source, store)
"""


@pytest.mark.parametrize("name", ["exit.json", "0.json", "run.json"])
@pytest.mark.parametrize("kind", ["copy", "import"])
def test_a_killed_copy_is_no_run_and_may_be_repeated(
    run: Path, tmp_path: Path, kind: str, name: str
) -> None:
    other = tmp_path / "other"
    export_runs([run], tmp_path / "run.zip")
    source = run if kind == "copy" else tmp_path / "run.zip"
    command = [sys.executable, "-c", COPY, str(source), str(other), name]
    assert subprocess.run(command, check=False).returncode == -9
    assert (other / run.name).is_dir()
    assert list(open_store(other)) == []
    with pytest.raises(NotARun):
        copy_run(other / run.name, tmp_path / "third")
    if kind == "copy":
        copy_run(run, other)
    else:
        list(import_runs(source, other))
    assert contents(other / run.name) == contents(run)


def test_an_archive_holds_runs_and_other_programs_check_it(run: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "second", [step_record(0, scalars={"losses/loss": 1.0})])
    (run / "model" / "line\u2028separator").write_text("")
    archive = tmp_path / "runs.zip"
    written = export_runs([run, tmp_path / "runs" / "second"], archive)
    assert written == (2, archive.stat().st_size)
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "out")
    check = subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"],
        cwd=tmp_path / "out",
        check=False,
    )
    assert check.returncode == 0
    assert contents(tmp_path / "out" / run.name) == contents(run)
    found = list(import_runs(archive, tmp_path / "other"))
    assert [(one.name, new) for one, new in found] == [(run.name, True), ("second", True)]
    assert contents(tmp_path / "other" / run.name) == contents(run)
    with pytest.raises(ConfigError, match="exists; choose another file"):
        export_runs([run], archive)


def test_an_import_may_be_repeated(run: Path, tmp_path: Path) -> None:
    second = tmp_path / "runs" / "second"
    make_run(second, [step_record(0, scalars={"losses/loss": 1.0})])
    archive, other = tmp_path / "runs.zip", tmp_path / "other"
    export_runs([run, second], archive)
    # What an import leaves that ended after the first run.
    copy_run(run, other)
    before = (other / run.name / "run.json").stat()
    assert list(import_runs(archive, other)) == [
        (other / run.name, False),
        (other / "second", True),
    ]
    assert (other / run.name / "run.json").stat() == before
    assert contents(other / "second") == contents(second)


def test_what_is_wrong_at_the_destination_is_not_said_of_the_archive(
    run: Path, tmp_path: Path
) -> None:
    archive, other = tmp_path / "run.zip", tmp_path / "other"
    export_runs([run], archive)
    (other / run.name).mkdir(parents=True)
    (other / run.name / "run.json").write_text("{")
    with pytest.raises(CorruptData, match=r"other/größe 1/run\.json") as raised:
        list(import_runs(archive, other))
    assert "archive" not in str(raised.value)
    with pytest.raises(StoreError, match=r"/proc/no/run\.zip: cannot be written"):
        export_runs([run], Path("/proc/no/run.zip"))


def test_a_name_that_no_archive_holds_is_refused(run: Path, tmp_path: Path) -> None:
    (run / "model" / "a\\b\n").write_text("")
    with pytest.raises(ConfigError, match="rename the file"):
        export_runs([run], tmp_path / "run.zip")
    assert sorted(os.listdir(tmp_path)) == ["runs"]


def test_a_damaged_archive_writes_nothing(run: Path, tmp_path: Path) -> None:
    archive, other = tmp_path / "run.zip", tmp_path / "other"
    export_runs([run], archive)
    sound = archive.read_bytes()
    wanted = contents(run)
    draw = random.Random(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(sound)
        if draw.random() < 0.2:
            del damaged[draw.randrange(len(damaged)) :]
        else:
            # Most of the file is one that the user made; the structure is at the end.
            where = draw.choice([draw.randrange(len(sound)), len(sound) - draw.randint(1, 4000)])
            damaged[where] ^= 1 << draw.randrange(8)
        archive.write_bytes(damaged)
        try:
            list(import_runs(archive, other))
        except CorruptData:
            assert not other.exists()
            refused += 1
        else:
            # A bit that says nothing, such as the time of a file.
            assert contents(other / run.name) == wanted
            subprocess.run(["rm", "-r", other], check=True)
    assert refused > 200


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../evil/run.json", "not a valid directory name"),
        ("/etc/run.json", "empty; give a name"),
        ("a/../../evil", "a key must be a relative name"),
        (".vinedresser/flow.json", "not a valid directory name"),
        ("a/.tmp-1", "a key must not begin with"),
    ],
)
def test_an_archive_writes_nowhere_else(tmp_path: Path, name: str, said: str) -> None:
    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, b"x")
        file.writestr("SHA256SUMS", f"{hashlib.sha256(b'x').hexdigest()}  {name}\n")
    with pytest.raises(CorruptData, match=said):
        list(import_runs(archive, tmp_path / "store"))
    assert os.listdir(tmp_path) == ["evil.zip"]


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/run.json", bytes(10_000_000))
        file.writestr("SHA256SUMS", "")
    with pytest.raises(CorruptData, match="compressed"):
        list(import_runs(archive, tmp_path / "store"))


def test_the_commands(run: Path, tmp_path: Path) -> None:
    def told(*arguments: str | Path, code: int) -> str:
        done = vinedresser(*map(str, arguments), cwd=tmp_path)
        assert done.returncode == code, done
        return done.stdout + done.stderr

    (tmp_path / "runs" / "second").mkdir()
    copied = told("copy", run, tmp_path / "runs" / "second", "--to", tmp_path / "other", code=1)
    assert list(open_store(tmp_path / "other")) == [run.name]
    assert "second: not a run" in copied
    assert "1 run," in told("export", run, "--to", "a.zip", code=0)
    told("import", "a.zip", "third", code=0)
    assert list(open_store(tmp_path / "third")) == [run.name]
    assert "was there already" in told("import", "a.zip", "third", code=0)
    told("rm", tmp_path / "third" / run.name, code=0)
    assert list(open_store(tmp_path / "third")) == []
    assert "pinned by ann: the paper" in told("rm", run, code=1)
    for command, code in (("rm", 1), ("pin", 2)):
        said = told(command, run.with_name("größe 2"), code=code)
        assert "not a run: there is no run.json; did you mean größe 1?" in " ".join(said.split())
    assert "no such file" in told("import", "b.zip", "third", code=2)
