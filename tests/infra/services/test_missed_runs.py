"""Missed runs are looked for also while Prefect's server is slow to answer."""

from __future__ import annotations

import socket
import threading

import pytest

from vinedresser.infra.services import missed_runs
from vinedresser.infra.services.servers import StandingPrefect

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]"


def test_a_request_without_an_answer_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_runs, "_TIMEOUT", 0.2)
    asked: list[bytes] = []

    def serve() -> None:
        for answer in (b"", ANSWER):
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(4096).split(b"\r\n")[0])
                connection.sendall(answer)
                # Until the client leaves it.
                while connection.recv(4096):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        missed_runs.catch_up(StandingPrefect({}, {}, url, "", "user:password", 1), pytest.fail)
        thread.join()
    assert asked == [b"POST /api/deployments/filter HTTP/1.1"] * 2
