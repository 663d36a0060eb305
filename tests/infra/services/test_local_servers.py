"""Servers on this machine: their ports, and why one has ended."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from vinedresser.errors import LaunchError
from vinedresser.infra.services.servers.local_server import free_ports, start_server

HOST = "127.0.0.1"


def test_a_wanted_port_and_free_ones_differ() -> None:
    # So many that the system would choose the wanted one, too, if it were not held meanwhile.
    [wanted] = free_ports(HOST, [0], "a server")
    ports = free_ports(HOST, [wanted, *[0] * 400], "a server")
    assert ports[0] == wanted
    assert len(set(ports)) == 401


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(LaunchError, match=f"the cellar cannot listen on {HOST}:{port}"):
            free_ports(HOST, [0, port], "the cellar")


def test_a_server_that_ends_gives_the_reason() -> None:
    command = ["sh", "-c", "echo file is not a database >&2; exit 3"]
    with pytest.raises(LaunchError, match="file is not a database"):
        start_server(
            "the cellar", command, f"http://{HOST}:1", lambda: False, timeout=60.0, environment={}
        )


def test_the_system_gives_no_connection_a_free_port() -> None:
    clients = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    if int(clients[0]) < 20_000:
        pytest.skip("clients are given nearly all ports here")
    assert max(free_ports(HOST, [0] * 100, "a server")) < int(clients[0])
