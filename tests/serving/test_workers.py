"""A server with several workers records in each of them, and loses little when one is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.paths import ROOT
from tests.waiting import until
from vinedresser.serving import RequestStore

pytestmark = pytest.mark.thorough


@contextmanager
def server(store: Path, log: Path) -> Iterator[str]:
    """Run the application with two workers, and return its URL."""
    command = [sys.executable, "-m", "uvicorn", "tests.serving.served_app:app"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", "0", "--workers", "2", "--no-access-log"],
            cwd=ROOT,
            env={**os.environ, "SERVICE_STORE": str(store)},
            stderr=output,
        )
    try:
        running = re.compile(r"running on (http://[\d.:]+)")
        until(lambda: running.search(log.read_text()) or process.poll() is not None)
        until(lambda: log.read_text().count("startup complete") == 2)
        found = running.search(log.read_text())
        assert found is not None
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ask(url: str, *ids: str) -> set[int]:
    """Send requests, each on a connection of its own; return the processes that answered."""
    processes = set()
    for number, one in enumerate(ids):
        response = httpx.post(
            f"{url}/predict", json={"age": number}, headers={"x-request-id": one}, timeout=60
        )
        assert response.status_code == 200
        processes.add(response.json()["process"])
    return processes


def test_workers_record_and_a_killed_one_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with server(store, tmp_path / "log") as url:
        seen: set[int] = set()
        sent: list[str] = []
        while len(seen) < 2:
            more = [f"{len(sent) + number}" for number in range(20)]
            seen |= ask(url, *more)
            sent += more
        reader = RequestStore(store / "service")
        until((store / "service/service.json").exists)
        until(lambda: set(reader.after(None)[0].ids) == set(sent), "all are committed")
        first, cursor = reader.after(None)
        victim = min(seen)
        os.kill(victim, signal.SIGKILL)
        # The server replaces it, and its successor records as well.
        until(lambda: victim not in ask(url, "again") and len(ask(url, "again")) == 1)
        ask(url, "last")
        until(lambda: "last" in RequestStore(store / "service").after(None)[0].ids)
    whole = RequestStore(store / "service")
    assert set(sent) <= set(whole.after(None)[0].ids)
    assert set(whole.after(cursor)[0].ids) <= {"again", "last"}
    assert len(first.ids) == len(set(first.ids))
    assert whole.problems == []
    runs = [path.name.split("-")[3] for path in (store / "service").glob("requests-*")]
    assert {str(one) for one in seen} <= set(runs)
    columns = first.columns
    assert {"age", "prediction"} <= columns.keys()
    assert [age > 40 for age in columns["age"]] == columns["prediction"].tolist()
    assert "recording requests" not in (tmp_path / "log").read_text()
