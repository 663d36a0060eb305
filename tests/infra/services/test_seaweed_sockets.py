"""A local S3 server leaves nothing in /tmp."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from vinedresser.errors import LaunchError
from vinedresser.infra.services.servers.seaweed_sockets import noted_sockets, remove_sockets
from vinedresser.testing.s3_server import seaweed

pytestmark = pytest.mark.thorough


def test_sockets_are_removed_with_their_server(tmp_path: Path) -> None:
    # The path of a socket has at most 107 bytes, that of a server's folder may be longer.
    folder = tmp_path / ("data" * 30)
    folder.mkdir()
    with seaweed(folder) as server:
        sockets = [Path(line) for line in (folder / "sockets.txt").read_text().splitlines()]
        assert len(sockets) == 6
        assert all(path.is_socket() for path in sockets)
        server.kill()
        # SeaweedFS leaves them when it is killed.
        assert any(path.is_socket() for path in sockets)
    assert not any(path.exists() for path in sockets)
    (own,) = {path.parent for path in sockets} - {Path("/tmp")}
    assert not own.exists()


def test_a_socket_in_use_by_another_server_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Paths of sockets have at most 108 bytes.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sockets.txt").write_text("left\nlistening\nnone")
    with socket.socket(socket.AF_UNIX) as left, socket.socket(socket.AF_UNIX) as listening:
        left.bind("left")
        listening.bind("listening")
        listening.listen()
        remove_sockets(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_socket()] == ["listening"]


def test_a_server_that_fails_to_start_leaves_no_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vinedresser.infra.services.servers.seaweed_sockets._PLACE", "{part}-{port}"
    )
    monkeypatch.chdir(tmp_path)

    def start() -> None:
        with noted_sockets(tmp_path, {"s3": 1}), socket.socket(socket.AF_UNIX) as left:
            left.bind("s3-1")
            raise LaunchError("it did not answer")

    with pytest.raises(LaunchError):
        start()
    assert not (tmp_path / "s3-1").exists()
