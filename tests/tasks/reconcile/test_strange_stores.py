"""Reconciling a store that came from somewhere else obeys nothing that is written in it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

from vinedresser.processes import this_process
from vinedresser.tasks.reconcile.reconcile import reconcile
from vinedresser.tasks.stores import private_state


def test_a_note_of_a_flow_in_a_store_ends_no_process(tmp_path: Path) -> None:
    gone = replace(this_process(), started=0)
    note = {"id": "0", "name": "a", "marker": "m", "process": asdict(gone)}
    for folder in (".vinedresser/flows", "flows"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "0.json").write_text(json.dumps(note))
    environment = {**os.environ, "VINEDRESSER_FLOW": "m"}
    with subprocess.Popen(["sleep", "600"], env=environment) as bystander:
        assert reconcile(tmp_path) == []
        assert bystander.poll() is None
        bystander.kill()


def test_the_state_of_a_store_is_outside_it_and_private(tmp_path: Path) -> None:
    folder = private_state(tmp_path)
    assert not folder.is_relative_to(tmp_path.resolve())
    assert {one.stat().st_mode & 0o777 for one in (folder, folder.parent.parent)} == {0o700}
    (tmp_path / "inner").mkdir()
    assert private_state(tmp_path / "inner" / "..") == folder
    assert private_state(tmp_path / "inner") != folder
