"""Local HTTP and SMTP servers that receive messages of actions."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

__all__ = ["MailServer", "WebServer", "mail_server", "web_server"]


class WebServer(ThreadingHTTPServer):
    """Replies with given status codes, then with 200.

    Attributes:
        codes: still to be answered.
        taken: header ``Idempotency-Key`` and JSON of each POST that was answered with 200.
        asked: how many requests came.
    """

    daemon_threads = True

    def __init__(self, codes: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Web)
        self.codes = list(codes)
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.asked = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.server_address[1]}/secret-path"


class _Web(BaseHTTPRequestHandler):
    server: WebServer

    def do_POST(self) -> None:
        """Receive a finding."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.asked += 1
            code = self.server.codes.pop(0) if self.server.codes else 200
            if code == 200:
                # Strictly standard JSON.
                told = json.loads(content, parse_constant=_refuse)
                self.server.taken.append((str(self.headers["Idempotency-Key"]), told))
        self.send_response(code)
        if code in (302, 307):
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


def _refuse(word: str) -> None:
    raise ValueError(word)


class MailServer(socketserver.ThreadingTCPServer):
    """Implements the part of SMTP that a client needs to deliver a mail.

    Attributes:
        replies: to the next mails' MAIL command, before they are taken; such as "451 later".
        mails: what was taken, as lines.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, replies: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Mail)
        self.replies = list(replies)
        self.mails: list[list[str]] = []

    @property
    def port(self) -> int:
        """Port of the server."""
        return int(self.server_address[1])


class _Mail(socketserver.StreamRequestHandler):
    server: MailServer
    plain: ClassVar[dict[str, str]] = {"RCPT": "250 ok", "RSET": "250 ok", "NOOP": "250 ok"}

    def handle(self) -> None:
        """Serve one client."""
        self.say("220 here")
        while line := self.rfile.readline().decode().strip():
            word = line[:4].upper()
            if word == "QUIT":
                self.say("221 bye")
                return
            if word in ("EHLO", "HELO"):
                self.say("250 here")
            elif word == "MAIL":
                self.say(self.server.replies.pop(0) if self.server.replies else "250 ok")
            elif word == "DATA":
                self.say("354 go on")
                lines = iter(lambda: self.rfile.readline().decode().rstrip("\r\n"), ".")
                self.server.mails.append(list(lines))
                self.say("250 taken")
            else:
                self.say(self.plain.get(word, "502 unknown"))

    def say(self, line: str) -> None:
        """Send a reply."""
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def _served(server: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def web_server(codes: list[int]) -> Iterator[WebServer]:
    """Serve HTTP; see `WebServer`."""
    with _served(WebServer(codes)) as server:
        yield server


@contextmanager
def mail_server(replies: list[str]) -> Iterator[MailServer]:
    """Serve SMTP; see `MailServer`."""
    with _served(MailServer(replies)) as server:
        yield server
