"""The private Prefect server: who may use it, and that it never outlives its owner."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.waiting import until
from vinedresser.errors import LaunchError
from vinedresser.infra.catalog.state_folder import state_folder
from vinedresser.infra.services.servers import PrivatePrefect, start_private_prefect
from vinedresser.processes import ProcessIdentity, identify, is_alive

OWNER = """
import json, sys
from vinedresser.infra.services.servers import start_private_prefect
server = start_private_prefect()
if "wait" in sys.argv:
    server.wait()
print(json.dumps([server.pid, str(server.home), server.environment()]), flush=True)
sys.stdin.read()
"""


@contextmanager
def server_of_another(phase: str) -> Iterator[tuple[ProcessIdentity, Path, dict[str, str]]]:
    """Provide the process, folder and variables of a server, whose owner is killed at the end."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, phase],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        pid, home, variables = json.loads(owner.stdout.readline())
        process = identify(pid)
        assert process is not None
        try:
            yield process, Path(home), variables
        finally:
            owner.send_signal(signal.SIGKILL)
            owner.wait()


def status(server: Mapping[str, str], password: str, **headers: str) -> int:
    """Return the status of a request to the API that variables name."""
    credentials = b64encode(password.encode()).decode()
    url = f"{server['PREFECT_API_URL']}/admin/version"
    request = urllib.request.Request(url, headers=headers)
    if password:
        request.add_header("Authorization", f"Basic {credentials}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def names_in(database: Path) -> set[str]:
    """Return the names of the tables and indices of a database."""
    with closing(sqlite3.connect(database)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


@pytest.mark.thorough
def test_it_serves_those_who_know_its_password(prefect_server: PrivatePrefect) -> None:
    variables = prefect_server.environment()
    password = variables["PREFECT_API_AUTH_STRING"]
    assert status(variables, password) == 200
    assert status(variables, "") == 401
    assert status(variables, "vinedresser:guessed") == 401
    assert status(variables, password, Host="rebound.example") == 400
    process = psutil.Process(prefect_server.pid)
    assert password not in " ".join(process.cmdline())
    listening = [
        connection.laddr
        for connection in process.net_connections()
        if connection.status == "LISTEN"
    ]
    assert [address.ip for address in listening] == ["127.0.0.1"]
    assert stat.S_IMODE(prefect_server.home.stat().st_mode) == 0o700
    assert os.getsid(prefect_server.pid) == prefect_server.pid, (
        "Ctrl-C in the terminal would reach it"
    )


@pytest.mark.thorough
def test_each_has_a_database_of_its_own_and_ends_with_an_owner_that_is_killed(
    prefect_server: PrivatePrefect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In one state folder: each looks there for tables, and for what others have left.
    monkeypatch.setenv("XDG_STATE_HOME", str(prefect_server.home.parents[2]))
    [tables] = (state_folder() / "prefect").glob("tables-*.db")
    made = tables.stat().st_mtime_ns
    with server_of_another("wait") as (process, home, variables):
        assert home.parent == prefect_server.home.parent
        assert home != prefect_server.home
        assert status(variables, variables["PREFECT_API_AUTH_STRING"]) == 200
        assert status(variables, prefect_server.environment()["PREFECT_API_AUTH_STRING"]) == 401
    until(lambda: not is_alive(process), "its end")
    assert tables.stat().st_mtime_ns == made
    assert not home.exists()
    assert prefect_server.home.exists()


def test_it_ends_with_an_owner_that_is_killed_before_it_serves() -> None:
    with server_of_another("start") as (process, home, _):
        pass
    until(lambda: not is_alive(process), "its end")
    # It may have been killed before it could look after its folder: the next one does.
    start_private_prefect().stop()
    assert not home.exists()


def test_what_a_killed_server_left_is_removed(tmp_path: Path) -> None:
    left = state_folder() / "prefect" / "flow-left"
    left.mkdir(parents=True)
    (left / "prefect.db").touch()
    server = start_private_prefect()
    server.stop()
    assert not left.exists()
    assert not server.home.exists()


def test_a_server_that_does_not_start_is_not_awaited() -> None:
    server = start_private_prefect()
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(LaunchError, match="Prefect's private server ended with code -9"):
        server.wait()
    server.stop()


@pytest.mark.slow  # the gate damages tables of another database (test_database_template.py)
def test_damaged_tables_are_made_again(
    prefect_server: PrivatePrefect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [tables] = (state_folder() / "prefect").glob("tables-*.db")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    damaged = state_folder() / "prefect" / tables.name
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(bytes(len(tables.read_bytes())))
    other = start_private_prefect()
    try:
        other.wait()
        variables = other.environment()
        assert status(variables, variables["PREFECT_API_AUTH_STRING"]) == 200
    finally:
        other.stop()
    assert names_in(damaged) == names_in(tables)
