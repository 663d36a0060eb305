"""Templates of databases: made once for a version, whoever is killed or suspended meanwhile."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from vinedresser.infra.catalog.state_folder import state_folder
from vinedresser.infra.services import database_template as module
from vinedresser.infra.services.database_template import database_template


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def makes(folder: Path, made: list[Path]) -> Callable[[], AbstractContextManager[Path]]:
    """Return what makes a database with one table, and notes that it did."""

    @contextmanager
    def make() -> Iterator[Path]:
        path = folder / f"{uuid.uuid4()}.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE runs (id)")
            made.append(path)
            yield path

    return make


def tables(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]


def test_it_is_made_once_for_each_version(tmp_path: Path) -> None:
    made: list[Path] = []
    said: list[str] = []
    make = makes(tmp_path, made)
    first = database_template("mlflow", "1.0", make, said.append)
    assert database_template("mlflow", "1.0", make, said.append) == first
    other = database_template("mlflow", "2.0", make)
    assert len(made) == 2
    assert first != other
    assert tables(first) == tables(other) == ["runs"]
    assert said == ["creating the tables of mlflow 1.0, once for all stores ..."]


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", bytes(8192)])
def test_a_damaged_one_is_made_again(tmp_path: Path, content: bytes) -> None:
    made: list[Path] = []
    template = database_template("mlflow", "1.0", makes(tmp_path, made))
    template.write_bytes(content)
    assert tables(database_template("mlflow", "1.0", makes(tmp_path, made))) == ["runs"]
    assert len(made) == 2


def test_a_maker_that_fails_or_is_killed_leaves_no_partial_one(tmp_path: Path) -> None:
    def fails() -> AbstractContextManager[Path]:
        raise ValueError("killed")

    with pytest.raises(ValueError, match="killed"):
        database_template("mlflow", "1.0", fails)
    folder = state_folder() / "mlflow"
    assert [*folder.glob("*.db*")] == []
    # Left by a process with this id that was killed while it wrote.
    (folder / f"tables-1.0.db.{os.getpid()}").write_bytes(bytes(100))
    assert tables(database_template("mlflow", "1.0", makes(tmp_path, []))) == ["runs"]
    assert [*folder.glob("*.db*")] == [folder / "tables-1.0.db"]


def test_a_suspended_maker_is_not_awaited_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database_template("mlflow", "1.0", makes(tmp_path, []))
    monkeypatch.setattr(module, "_PATIENCE", 0.1)
    said: list[str] = []
    # The kernel holds the lock for a suspended process as for this one.
    with (state_folder() / "mlflow" / "tables.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        template = database_template("mlflow", "2.0", makes(tmp_path, []), said.append)
    assert tables(template) == ["runs"]
    assert said[0] == "waiting for another process that creates the same tables ..."
