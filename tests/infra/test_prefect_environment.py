"""A flow waits for its Prefect server, and names a server that does not answer."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from vinedresser.errors import LaunchError
from vinedresser.infra import prefect_environment
from vinedresser.infra.servers.local_server import free_ports


class Denies(BaseHTTPRequestHandler):
    """A server that requires a password."""

    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, *arguments: object) -> None:
        pass


def test_a_restarting_server_is_awaited() -> None:
    [port] = free_ports("127.0.0.1", 1)
    servers: list[HTTPServer] = []

    def come_back() -> None:
        time.sleep(1.0)
        servers.append(HTTPServer(("127.0.0.1", port), Denies))
        servers[0].handle_request()
        servers[0].server_close()

    thread = threading.Thread(target=come_back)
    thread.start()
    prefect_environment._await_server(f"http://127.0.0.1:{port}/api")
    assert servers, "it did not wait"
    thread.join()


def test_an_unreachable_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports("127.0.0.1", 1)
    monkeypatch.setattr(prefect_environment, "_PATIENCE", 0.0)
    url = f"http://127.0.0.1:{port}/api"
    with pytest.raises(LaunchError, match=f"Prefect's server at {url}.*does not answer"):
        prefect_environment._await_server(url)
    prefect_environment._await_server(None)
