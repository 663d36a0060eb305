"""A flow starts its Prefect server early, waits for it, and names one that does not answer."""

from __future__ import annotations

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.warm_python import COMMANDS
from vinedresser.errors import LaunchError
from vinedresser.infra.services import prefect_environment
from vinedresser.infra.services.servers.local_server import free_ports


class Denies(BaseHTTPRequestHandler):
    """A server that requires a password."""

    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.thorough
def test_a_restarting_server_is_awaited() -> None:
    [port] = free_ports("127.0.0.1", [0], "nobody")
    servers: list[HTTPServer] = []

    def come_back() -> None:
        time.sleep(1.0)
        servers.append(HTTPServer(("127.0.0.1", port), Denies))
        servers[0].handle_request()
        servers[0].server_close()

    thread = threading.Thread(target=come_back)
    thread.start()
    prefect_environment._await_server(f"http://127.0.0.1:{port}/api", 60.0)
    assert servers, "it did not wait"
    thread.join()


def test_an_unreachable_server_is_named() -> None:
    [port] = free_ports("127.0.0.1", [0], "nobody")
    url = f"http://127.0.0.1:{port}/api"
    with pytest.raises(LaunchError, match=f"Prefect's server at {url}.*does not answer"):
        prefect_environment._await_server(url, 0.0)


PREPARE = """
import json, os, sys
from pathlib import Path
from vinedresser.infra.services.prefect_environment import prepare_prefect

loaded = []

def note(event, arguments):
    server = "vinedresser.infra.services.servers.prefect_process"
    if event == "subprocess.Popen" and server in arguments[1]:
        loaded.append("prefect" in sys.modules)

sys.addaudithook(note)
before = dict(os.environ)
prepare_prefect(Path(sys.argv[1]))
from prefect.settings import get_current_settings

print(json.dumps({
    "loaded": loaded,
    "new": sorted(os.environ.items() - before.items()),
    "url": get_current_settings().api.url,
    "password": get_current_settings().api.auth_string.get_secret_value(),
}))
"""


@pytest.mark.thorough
def test_a_private_server_starts_before_prefect_is_imported_and_is_known_to_it_alone(
    tmp_path: Path,
) -> None:
    done = COMMANDS.run(["-c", PREPARE, str(tmp_path)], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["loaded"] == [False]
    assert found["url"].startswith("http://127.0.0.1:")
    assert found["password"].startswith("vinedresser:")
    # What processes inherit that are started later, such as trainings.
    names = {name for name, _ in found["new"]}
    logging = {"PREFECT_LOGGING_LEVEL", "PREFECT_LOGGING_INTERNAL_LEVEL"}
    assert names == {*logging, "PREFECT_CLI_PROMPT", "VINEDRESSER_FLOW"}
