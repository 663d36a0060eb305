"""Asking the agent of a running training."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode

from vinedresser.errors import AgentAway, ConfigError, CorruptData
from vinedresser.queries.answer import LARGEST_ANSWER, Answer
from vinedresser.queries.live.place import agent_name, opened_folder, peer_is_this_user
from vinedresser.queries.query import Query
from vinedresser.queries.standing import DEFAULT_RATE

__all__ = ["AgentLost", "agent_status", "ask_live", "ask_with_pauses", "flush_live"]

# Seconds for a request, and between two signs of life of a stream; a training may compute for long
# without releasing the interpreter.
_PATIENCE = 60.0
# Seconds to wait for a place in the queue of connections, and between two attempts.
_QUEUE_PATIENCE = 10.0
_QUEUE_PAUSE = 0.05
_LARGEST = 1 << 20


class AgentLost(AgentAway):
    """An agent that has accepted a connection does not respond any more."""


def ask_live(
    location: str,
    query: Query,
    *,
    rank: int = 0,
    rate: float | None = DEFAULT_RATE,
) -> Iterator[Answer]:
    """Ask a running training; yield the answers until the training ends.

    Closing the iterator ends the query.

    Args:
        rate: maximum number of windows per second; None: no limit.

    Raises:
        AgentAway: no agent of this user listens.
        AgentLost: it has gone away.
        ConfigError: the training refuses the query.
        CorruptData: an answer is damaged.
    """
    for pause in ask_with_pauses(location, query, rank=rank, rate=rate):
        if pause is not None:
            yield pause


def ask_with_pauses(
    location: str, query: Query, *, rank: int, rate: float | None, stream: str = ""
) -> Iterator[Answer | None]:
    """Ask a running training; yield None about once a second if there is no answer.

    See `ask_live`.
    """
    asked = {"query": query.text, "every": str(query.every), "stream": stream}
    asked["rate"] = "" if rate is None else repr(float(rate))
    with closing(_Connection(location, rank)) as connection:
        response = connection.requested("GET", "/ask", asked)
        first = None
        for text in _events(response, connection.where):
            found = Answer.from_json(text, first) if text else None
            first = first or found
            yield found


def flush_live(location: str, stream: str, *, rank: int = 0) -> None:
    """Close the windows of a stream with the next event.

    Args:
        stream: name of the stream, as in its answers.
        rank: rank to ask.

    Raises:
        AgentAway: no agent of this user listens.
        ConfigError: there is no such stream.
    """
    with closing(_Connection(location, rank)) as connection:
        connection.requested("POST", "/flush", {"stream": stream}).read(_LARGEST)


def agent_status(location: str, *, rank: int = 0) -> dict[str, Any]:
    """Return what a running training offers: events, names, shapes, streams.

    Args:
        rank: rank to ask.

    Raises:
        AgentAway: no agent of this user listens.
        CorruptData: the response is damaged.
    """
    with closing(_Connection(location, rank)) as connection:
        text = connection.requested("GET", "/status", {}).read(64 * _LARGEST)
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise CorruptData(f"{location}: not a status: {error}") from error
    return found


class _Connection(HTTPConnection):
    """A connection to an agent over its Unix socket."""

    def __init__(self, location: str, rank: int) -> None:
        super().__init__("vinedresser", timeout=_PATIENCE)
        self.where = f"{location}, rank {rank}"
        self._name = agent_name(location, rank)

    def connect(self) -> None:
        """Connect, and check who listens."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        deadline = time.monotonic() + _QUEUE_PATIENCE
        try:
            while not self._accepted():
                if time.monotonic() > deadline:
                    self.close()
                    raise AgentLost(f"{self.where}: the agent has too many clients")
                time.sleep(_QUEUE_PAUSE)
        except AgentLost:
            raise
        except (OSError, AgentAway) as error:
            self.close()
            raise AgentAway(f"{self.where}: no agent listens") from error
        if not peer_is_this_user(self.sock):
            self.close()
            raise AgentAway(f"{self.where}: the agent belongs to another user")

    def _accepted(self) -> bool:
        """Connect; return False if too many others wait for that."""
        try:
            with opened_folder() as folder:
                self.sock.connect(f"{folder}/{self._name}")
        except BlockingIOError:
            return False
        return True

    def requested(self, method: str, path: str, fields: Mapping[str, str]) -> HTTPResponse:
        """Send a request; return the response if it is not a refusal."""
        try:
            self.request(method, f"{path}?{urlencode(fields)}")
            response = self.getresponse()
            if response.status == 200:
                return response
            reason = response.read(_LARGEST).decode(errors="replace")
        except (HTTPException, OSError) as error:
            if isinstance(error, AgentAway):
                raise
            raise AgentLost(f"{self.where}: the agent does not respond: {error}") from error
        if response.status == 503:
            raise AgentAway(f"{self.where}: the agent has too many clients")
        raise ConfigError(f"{self.where}: {reason}")


def _events(response: HTTPResponse, where: str) -> Iterator[str]:
    """Yield the data of server-sent events until the stream ends, and "" for signs of life."""
    rest = b""
    while True:
        try:
            read = response.read1(1 << 16)
        except (HTTPException, OSError) as error:
            raise AgentLost(f"{where}: the training has gone away") from error
        if not read:
            return
        *events, rest = (rest + read).split(b"\n\n")
        if len(rest) > 2 * LARGEST_ANSWER + 100:
            raise CorruptData(f"{where}: an event of more than {2 * LARGEST_ANSWER:,} bytes")
        for event in events:
            yield event[6:].decode(errors="replace") if event.startswith(b"data: ") else ""
