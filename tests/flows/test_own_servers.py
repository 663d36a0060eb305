"""Flows with private Prefect servers: side by side on one store, and unknown to their trainings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_line import started_vinedresser
from vinedresser.store.reading.reader import open_run

SCRIPT = """
import json, os, sys
from vinedresser.capture import Hook

with Hook() as hook:
    for _ in range(9):
        hook.step(loss=1.0)
with open(sys.argv[1], "w") as file:
    json.dump(dict(os.environ), file)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_flows_on_one_store_at_once(
    tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> None:
    mlflow_store(tmp_path / "runs")
    # Their servers are on this machine: a proxy, here one that is away, has no part in it.
    environment = {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "example.org"}
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    flows = []
    for name in ("one", "two"):
        run = f'[run]\nname = "{name}"\ncommand = ["python", "script.py", "{name}.json"]\n'
        (tmp_path / f"{name}.toml").write_text(run, encoding="utf-8")
        flows.append(
            started_vinedresser("train", f"{name}.toml", cwd=tmp_path, environment=environment)
        )
    outputs = [flow.communicate()[0] for flow in flows]
    assert [flow.returncode for flow in flows] == [0, 0], outputs
    for name in ("one", "two"):
        assert open_run(tmp_path / "runs" / name).status.state == "finished"
        seen = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        prefect = {key for key in seen if key.startswith("PREFECT_")}
        own = {key for key in os.environ if key.startswith("PREFECT_")}
        levels = {"PREFECT_LOGGING_LEVEL", "PREFECT_LOGGING_INTERNAL_LEVEL"}
        assert prefect == own | levels | {"PREFECT_CLI_PROMPT"}
        assert seen["NO_PROXY"] == "example.org,127.0.0.1"
        assert not (tmp_path / "runs" / ".vinedresser" / "prefect").exists()
