"""A store becomes unavailable while a run on it is judged and recorded."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vinedresser import open_run
from vinedresser.capture import Hook
from vinedresser.infra.services.tracking import prepare_tracking
from vinedresser.rules.judge import judge
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.records import TrackingRecord
from vinedresser.tasks.lifecycle.judging import run_judge
from vinedresser.tasks.lifecycle.mlflow_metrics import send_metrics
from vinedresser.testing.s3_server import BUCKET, seaweed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_an_outage_of_the_store_delays_metrics_and_findings_only(
    s3: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mlflow_store: Callable[[Path], Path],
    mlflow_runs: Callable[[Path], dict[str, Any]],
) -> None:
    url = f"s3://{BUCKET}/run"
    uri = f"sqlite:///{mlflow_store(tmp_path)}/mlflow.db"
    tracking = TrackingRecord(uri, prepare_tracking(uri, "outage"), run_id="")
    (tmp_path / "rules").mkdir()
    rules = {"rules": {"nonfinite": {"severity": "warning"}}}
    (tmp_path / "rules" / "default.json").write_text(json.dumps(rules), encoding="utf-8")
    with seaweed(tmp_path / "server") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with Hook(url) as hook:
            beside = [
                threading.Thread(target=send_metrics, args=(url, tracking)),
                threading.Thread(
                    target=run_judge, args=(tmp_path, "default"), kwargs={"location": url}
                ),
            ]
            for thread in beside:
                thread.start()
            for step in range(200):
                if step == 80:
                    server.kill()
                if step == 120:
                    # Long enough for the client to give up.
                    deadline = time.monotonic() + 60
                    log = tmp_path / "rules" / "default.log"
                    while not log.read_bytes():
                        assert time.monotonic() < deadline
                        time.sleep(0.1)
                    server.restart()
                loss = np.nan if step == 150 else 1 / (1 + step)
                hook.step(loss=loss)
                time.sleep(0.02)
        for thread in beside:
            thread.join()
        assert open_run(url).steps().tolist() == list(range(200))
        found = open_run(url).findings()
        assert found == judge(open_run(url), rules_from_table(rules["rules"]))
        assert found[-1].step == 150
    assert mlflow_runs(tmp_path)["run"]["steps"] == list(range(200))
