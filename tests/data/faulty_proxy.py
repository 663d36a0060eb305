"""An HTTP proxy before a real S3 server, which answers ranged requests as a test wants."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

__all__ = ["Proxy", "faulty_proxy"]


class Proxy:
    """What the proxy does, and what it has seen.

    Attributes:
        url: its URL, an endpoint for reading.
        fault: called with the number of each ranged request, from 0; returns the number of bytes
            after which the connection is closed, -1 for the response 503 SlowDown, or None to
            forward the whole response.
        begins: first byte of the range of each request that was forwarded, by its number.
        seen: number of ranged requests.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.fault: Callable[[int], int | None] = lambda number: None
        self.begins: dict[int, int] = {}
        self.seen = 0


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[Proxy]:
    """Start a proxy.

    Args:
        endpoint: URL of the server, ``http://host:port``.
    """
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.forward(None)

        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            if not asked:
                self.forward(None)
                return
            with lock:
                number = proxy.seen
                proxy.seen += 1
            fault = proxy.fault(number)
            if fault == -1:
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            proxy.begins[number] = int(asked.removeprefix("bytes=").split("-")[0])
            self.forward(fault)

        def forward(self, most: int | None) -> None:
            server = http.client.HTTPConnection(endpoint.removeprefix("http://"))
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                server.putheader(name, value)
            server.endheaders()
            answer = server.getresponse()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                self.send_header(name, value)
            self.end_headers()
            content = answer.read()
            server.close()
            self.wfile.write(content[:most])
            if most is not None and most < len(content):
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
