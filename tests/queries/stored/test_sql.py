"""SQL over the streams of a store reaches its two tables, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vinedresser
from vinedresser.errors import QueryError
from vinedresser.queries.stored.saving import saved
from vinedresser.queries.stored.sql import sql
from vinedresser.testing.runs import make_run, step_record

pytest.importorskip("duckdb", reason="DuckDB is not installed")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for number in range(3):
        records = [
            step_record(step, tensors={"gradients/a": np.full(4, number + step / 10)})
            for step in range(10)
        ]
        run = make_run(tmp_path / f"run-{number}", records, name=f"run-{number}")
        list(saved(vinedresser.ask(run, "max(gradients)"), run, "largest"))
    make_run(tmp_path / "without", [step_record(0)], name="without")
    return tmp_path


def test_streams_of_all_runs_are_one_table(store: Path) -> None:
    found = sql(store, "select run, max(value) as top from answers group by run order by run")
    assert found["run"].tolist() == ["run-0", "run-1", "run-2"]
    assert found["top"].tolist() == pytest.approx([0.9, 1.9, 2.9])
    joined = sql(store, "select count(*) as n from answers join runs on runs.name = answers.run")
    assert joined["n"].tolist() == [30]
    assert len(sql(store, "select * from runs")) == 4


def test_a_store_without_streams_has_an_empty_table(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [step_record(0)])
    assert sql(tmp_path, "select count(*) as n from answers")["n"].tolist() == [0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/etc/*')",
        "select * from '/etc/passwd'",
        "copy answers to '{}/stolen.csv'",
        "copy answers to '.tmp/stolen.csv'",
        "export database '{}/stolen'",
        "attach '{}/stolen.db'",
        "import database '/tmp'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set memory_limit = '1TB'",
        "reset lock_configuration",
        "select * from store",
        "select getenv('HOME')",
        "not sql",
    ],
)
def test_a_statement_reaches_nothing_else(store: Path, tmp_path: Path, statement: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(QueryError, match="not a valid statement"):
        sql(store, statement.format(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path(".tmp").exists()
