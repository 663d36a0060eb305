"""Real servers that are stopped, killed or locked: what is said of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.tasks.health.test_health import install
from tests.waiting import until
from vinedresser.infra.services.servers import (
    WORK_POOL,
    StandingPrefect,
    bring_up,
    bring_up_prefect,
    take_down,
    take_down_prefect,
)
from vinedresser.infra.services.servers.note import opened_note
from vinedresser.infra.services.servers.prefect_api import ask_prefect
from vinedresser.processes import ProcessIdentity, wait_for_end
from vinedresser.tasks.health.servers import server_checks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield
    take_down_prefect()
    take_down()


def found(*, scheduler: bool = False) -> list[str]:
    """Return what is not in order."""
    checks = server_checks(scheduler=scheduler)
    return [check.seen for check in checks if check.state != "ok"]


def note(standing: StandingPrefect) -> None:
    with opened_note("prefect") as file:
        file.write(asdict(standing))


def test_each_trouble_of_prefect_is_named_while_it_lasts(tmp_path: Path) -> None:
    standing = bring_up_prefect(port=0)
    server, worker = (ProcessIdentity(**one) for one in (standing.server, standing.worker))
    assert found(scheduler=True) == []

    pool = f"work_pools/{WORK_POOL}"
    ask_prefect(standing.url, standing.password, "PATCH", pool, {"is_paused": True})
    assert found() == ["its work pool is paused"]
    ask_prefect(standing.url, standing.password, "PATCH", pool, {"is_paused": False})

    # As after an upgrade.
    install(tmp_path / "site", "prefect", "3.99.0")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path / "site")
        [seen] = found()
    assert seen.endswith("runs, and 3.99.0 is installed")

    note(replace(standing, password="vinedresser:expired"))
    assert found() == ["refuses its password"]
    note(standing)

    os.kill(worker.pid, signal.SIGSTOP)
    assert found() == ["is stopped by a signal"]
    os.kill(worker.pid, signal.SIGCONT)
    assert found() == []
    os.kill(worker.pid, signal.SIGKILL)
    assert wait_for_end(worker)
    assert found() == ["its process is gone"]

    os.killpg(server.pid, signal.SIGSTOP)
    [seen] = found()
    assert seen.startswith("does not answer within 10 s")
    os.killpg(server.pid, signal.SIGKILL)
    assert wait_for_end(server)
    # Another process of the server may listen a little longer.
    until(lambda: found() == ["its process is gone"], "the end of the server")

    # What it recommends.
    bring_up_prefect()
    assert found() == []


def test_an_s3_server_that_does_not_answer_is_named() -> None:
    standing = bring_up(port=0)
    assert found() == []
    server = ProcessIdentity(**standing.process)
    os.killpg(server.pid, signal.SIGSTOP)
    [seen] = found()
    assert seen.startswith("does not answer within 10 s")
    os.killpg(server.pid, signal.SIGKILL)
    assert wait_for_end(server)
    assert found() == ["its process is gone"]
