"""All runs of a store: by name, as a table and as a frame."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

import vinedresser
from vinedresser import open_store
from vinedresser.errors import NotARun, UnknownRun
from vinedresser.store.finding import Finding
from vinedresser.store.records import RunRecord, findings_key
from vinedresser.testing.runs import make_run, step_record

FINDING = Finding(
    *("nonfinite", "stop", 4, 3, "train", 0, "losses/x", "loss", 1.0, 0.0, 1.0),
    *("losses/x is <b>infinite</b>", "", ""),
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with three runs, one of them damaged."""
    steps = [
        step_record(0, scalars={"losses/x": 2.0}),
        step_record(1, scalars={"losses/x": 1.0}),
        step_record(2, mode="eval", scalars={"losses/x": 1.5, "metrics/accuracy": 0.5}),
    ]
    make_run(tmp_path / "b", steps, name="b", parameters={"lr": 0.1})
    make_run(tmp_path / "a", steps[:2], name="a", parameters={"layers": 3})
    file = tmp_path / "a" / findings_key("main")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(asdict(FINDING)) + "\n")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / RunRecord.KEY).write_text("{")
    (tmp_path / "other").mkdir()
    return tmp_path


def test_runs_are_found_by_name(store: Path) -> None:
    found = open_store(store)
    assert list(found) == ["a", "b", "c"]
    assert "a" in found
    assert "other" not in found
    assert found["b"].info.parameters == {"lr": 0.1}
    assert repr(found) == f"RunStore({str(store)!r}, 3 runs)"
    with pytest.raises(UnknownRun, match="no run bb; did you mean"):
        found["bb"]
    assert found.get("bb") is None


def test_new_runs_are_found_after_a_refresh(store: Path) -> None:
    found = open_store(store)
    make_run(store / "d", [], name="d")
    assert "d" not in found
    found.refresh()
    assert "d" in found


def test_a_frame_has_a_row_per_run(store: Path) -> None:
    frame = open_store(store).to_pandas().set_index("name")
    assert frame["state"].to_dict() == {"a": "finished", "b": "finished", "c": "unreadable"}
    assert frame["rule"].to_dict() == {"a": "nonfinite", "b": "", "c": ""}
    assert frame.loc["b", "parameters.lr"] == 0.1
    assert frame.loc["a", "parameters.layers"] == 3
    assert frame.loc["b", "losses/x"] == 1.0
    assert frame.loc["b", "eval.losses/x"] == 1.5
    assert frame.loc["b", "eval.metrics/accuracy"] == 0.5
    created = open_store(store)["b"].info.created
    assert frame.loc["b", "created"] == pd.Timestamp(created, unit="s", tz="UTC")


def test_an_empty_store_is_an_empty_frame(tmp_path: Path) -> None:
    assert len(open_store(tmp_path)) == 0
    assert open_store(tmp_path).to_pandas().empty


def test_a_notebook_shows_a_table_in_which_nothing_of_a_run_is_obeyed(store: Path) -> None:
    shown = open_store(store)._repr_html_()
    assert shown.count("<tr>") == 4
    assert "losses/x is &lt;b&gt;infinite&lt;/b&gt;" in shown
    assert "<b>" not in shown


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="away: no such directory"):
        open_store(tmp_path / "away")


def test_completion_finds_the_names_of_the_package() -> None:
    assert {"Hook", "open_run", "open_store", "compare"} <= set(dir(vinedresser))
    for name in dir(vinedresser):
        assert getattr(vinedresser, name) is not None


def test_importing_the_package_loads_no_numpy() -> None:
    code = "import sys, vinedresser; dir(vinedresser); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
