"""A standing Prefect server with its worker, which the tests of deployments share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.standing import Standing, vinedresser
from vinedresser.infra.services.servers import PrivatePrefect, standing_prefect
from vinedresser.processes import ProcessIdentity, is_alive


@pytest.fixture(scope="session")
def standing_state(
    tmp_path_factory: pytest.TempPathFactory, prefect_server: PrivatePrefect
) -> Iterator[Path]:
    """Return the state folder of a server that `vinedresser up` started."""
    folder = tmp_path_factory.mktemp("standing")
    state = folder / "state"
    # Making the tables takes many seconds; `up` makes them in tests/infra/services/.
    [tables] = prefect_server.home.parent.glob("tables-*.db")
    (folder / "data").mkdir()
    shutil.copy(tables, folder / "data" / "prefect.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        said = vinedresser(folder, "up", "--data", "data", "--port", "0", "--limit", "2")
        standing = standing_prefect()
        assert standing is not None
        for name, value in standing.environment().items():
            assert f"export {name}={value}\n" in said
    yield state
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        last = standing_prefect()
        assert last is not None
        assert f"stopped Prefect at {last.url}" in vinedresser(folder, "down")
    for process in (last.server, last.worker):
        assert not is_alive(ProcessIdentity(**process))


@pytest.fixture
def prefect(standing_state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standing]:
    """Return a standing server, which programs find and which must log no error."""
    monkeypatch.setenv("XDG_STATE_HOME", str(standing_state))
    standing = Standing()
    for name, value in standing.server.environment().items():
        monkeypatch.setenv(name, value)
    yield standing
    if standing.checks_logs:
        problems = standing.problems()
        assert not problems, "\n".join(problems)
