"""The servers of a sweep, which come back some time after they are killed."""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from threading import Thread

from vinedresser.infra.services.servers import start_mlflow_ui, stop_server
from vinedresser.infra.services.servers.local_server import LocalServer, free_ports, start_server
from vinedresser.testing.s3_server import TestServer

__all__ = ["SERVERS", "Servers"]

SERVERS = ("Prefect server", "MLflow server", "SeaweedFS")


class Servers:
    """The servers of a sweep.

    Args:
        folder: for their files.
        remote: there is an S3 server.
        central: Prefect and MLflow are servers; else MLflow is a database.
    """

    def __init__(self, folder: Path, *, remote: bool, central: bool) -> None:
        self._folder = folder
        self._prefect_port, self._mlflow_port = free_ports("127.0.0.1", [0, 0], "the servers")
        self._s3 = TestServer(folder / "s3") if remote else None
        self._prefect = self._start_prefect() if central else None
        self._mlflow = self._start_mlflow() if central else None
        self._returning: dict[str, Thread] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which they are found."""
        return {
            **(self._s3.environment if self._s3 else {}),
            **({"PREFECT_API_URL": f"{self._prefect.url}/api"} if self._prefect else {}),
        }

    @property
    def tracking_uri(self) -> str:
        """Where MLflow keeps the runs."""
        return self._mlflow.url if self._mlflow else f"sqlite:///{self._folder}/mlflow.db"

    def kill(self, kind: str, pause: float) -> bool:
        """Kill one, which comes back some seconds later; return False if it is not there."""
        returning = self._returning.get(kind)
        if returning is not None and returning.is_alive():
            return False
        if kind == "SeaweedFS":
            assert self._s3 is not None
            self._s3.kill()
        else:
            server = self._mlflow if kind == "MLflow server" else self._prefect
            assert server is not None
            stop_server(server, grace=0.0)
        self._returning[kind] = Thread(target=self._bring_back, args=(kind, pause))
        self._returning[kind].start()
        return True

    def wait(self) -> None:
        """Wait until all that were killed are back."""
        for thread in self._returning.values():
            thread.join()

    def close(self) -> None:
        """End them."""
        for server in filter(None, (self._prefect, self._mlflow)):
            stop_server(server, grace=0.0)
        if self._s3:
            self._s3.close()

    def _bring_back(self, kind: str, pause: float) -> None:
        time.sleep(pause)
        if kind == "SeaweedFS":
            assert self._s3 is not None
            self._s3.restart()
        elif kind == "MLflow server":
            self._mlflow = self._start_mlflow()
        else:
            self._prefect = self._start_prefect()

    def _start_mlflow(self) -> LocalServer:
        return start_mlflow_ui(f"sqlite:///{self._folder}/mlflow.db", port=self._mlflow_port)

    def _start_prefect(self) -> LocalServer:
        url = f"http://127.0.0.1:{self._prefect_port}"
        return start_server(
            "Prefect's server",
            [
                *(sys.executable, "-m", "prefect", "server", "start", "--no-services", "--no-ui"),
                *("--host", "127.0.0.1", "--port", str(self._prefect_port)),
            ],
            url,
            lambda: _answers(f"{url}/api/health"),
            timeout=240.0,
            environment={"PREFECT_HOME": str(self._folder / "prefect-server")},
        )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
