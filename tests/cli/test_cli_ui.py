"""`vinedresser ui`: MLflow on loopback, which ends with the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from vinedresser.infra.catalog.known_tracking import remember_tracking
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.objects import LocalStorage
from vinedresser.processes import marked_processes
from vinedresser.store.records import RunRecord, TrackingRecord, write_record


@pytest.mark.thorough
def test_ui_serves_the_store_and_leaves_no_process_behind(
    tmp_path: Path, mlflow_store: Callable[[Path], Path]
) -> None:
    uri = f"sqlite:///{mlflow_store(tmp_path)}/mlflow.db"
    run = LocalStorage(tmp_path / "one")
    write_record(run, RunRecord(id="0" * 32, name="one", created=time.time()))
    write_record(run, TrackingRecord(uri, prepare_tracking(uri, "digits"), run_id="0"))
    remember_tracking(tmp_path, uri)
    ui = subprocess.Popen(
        [sys.executable, "-m", "vinedresser", "ui", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "UI_TEST": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert ui.stdout is not None
        line = ui.stdout.readline()
        assert "viewStateShareKey=vinedresser" in line
        url = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert url is not None
        with urllib.request.urlopen(f"{url[0]}health") as answer:
            assert answer.read() == b"OK"
        port = int(url[1])
        listening = {
            entry.laddr.ip
            for entry in psutil.net_connections("inet")
            if entry.status == psutil.CONN_LISTEN and entry.laddr.port == port
        }
        assert listening == {"127.0.0.1"}
    finally:
        ui.kill()
        ui.communicate()
    deadline = time.monotonic() + 20
    while left := list(marked_processes(f"UI_TEST={tmp_path}")):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
