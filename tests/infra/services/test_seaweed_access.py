"""Whoever lacks the key of a local S3 server gets nothing from any of its ports and sockets."""

from __future__ import annotations

import http.client
import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from vinedresser.infra.services.servers.local_server import stop_server
from vinedresser.infra.services.servers.seaweed import account_in, start_seaweed
from vinedresser.infra.services.servers.seaweed_sockets import remove_sockets
from vinedresser.infra.services.servers.standing import make_bucket

# The start of HTTP/2, and so of gRPC: an empty SETTINGS frame follows.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, psutil.Process, int]]:
    """Return the folder, the process and the S3 port of a server with a bucket."""
    folder = tmp_path_factory.mktemp("seaweed")
    # As an earlier version would have left it.
    folder.chmod(0o755)
    running = start_seaweed(folder, volume_megabytes=64, volumes=8)
    try:
        make_bucket("things", account_in(folder).environment(running.url))
        port = int(running.url.rpartition(":")[2])
        yield folder, psutil.Process(running.process.pid), port
    finally:
        stop_server(running, grace=0.0)
        remove_sockets(folder)


def answer(address: tuple[str, int], sent: bytes, *, encrypted: bool) -> bytes:
    """Return what a port answers to a client without a certificate; b"" for a refusal."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as open_ones:
        connection = open_ones.enter_context(socket.create_connection(address, timeout=20.0))
        try:
            if encrypted:
                connection = open_ones.enter_context(context.wrap_socket(connection))
            connection.sendall(sent)
            return connection.recv(4096)
        except (ssl.SSLError, ConnectionError):
            return b""


@pytest.mark.thorough
def test_every_port_asks_for_a_key(server: tuple[Path, psutil.Process, int]) -> None:
    _, process, s3 = server
    found = [
        connection
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {one.laddr.ip for one in found} == {"127.0.0.1"}
    ports = {one.laddr.port for one in found}
    assert len(ports) == 8
    for port in ports - {s3}:
        for sent in (REQUEST, PREFACE):
            assert answer(("127.0.0.1", port), sent, encrypted=True) == b""
            plain = answer(("127.0.0.1", port), sent, encrypted=False)
            # Go's web servers say in plain text that they want TLS.
            assert plain[:1] in (b"", b"\x15") or plain.startswith(b"HTTP/1.0 400 Bad Request")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", None),
        ("GET", "/things", None),
        ("GET", "/things/key", None),
        ("PUT", "/things/key", "x"),
        ("DELETE", "/things/key", None),
        ("DELETE", "/things", None),
        ("POST", "/", "Action=ListUsers&Version=2010-05-08"),
        ("POST", "/", "Action=CreateUser&UserName=me&Version=2010-05-08"),
    ],
)
def test_s3_asks_for_credentials(
    server: tuple[Path, psutil.Process, int], method: str, path: str, body: str | None
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server[2], timeout=20.0)
    connection.request(method, path, body, {"Content-Type": "application/x-www-form-urlencoded"})
    with connection.getresponse() as response:
        # The second for calls of IAM without a signature.
        assert response.status in (403, 405)
    connection.close()


@pytest.mark.thorough
def test_its_files_and_sockets_are_those_of_their_owner(
    server: tuple[Path, psutil.Process, int],
) -> None:
    folder, process, _ = server
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    paths = {
        Path(connection.laddr) for connection in process.net_connections("unix") if connection.laddr
    }
    assert len(paths) == 6
    written = [one for one in folder.rglob("*") if one.suffix != ".txt"]
    for path in (*paths, *written):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
