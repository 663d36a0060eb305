"""The HTTP server of an agent: queries in, answers out as server-sent events.

Loaded when the first client connects.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server

from vinedresser.capture.config.asked import check_kinds
from vinedresser.capture.live.observer import LiveObserver
from vinedresser.errors import ConfigError
from vinedresser.queries.answer import Answer
from vinedresser.queries.live.place import peer_is_this_user
from vinedresser.queries.live.prompt_connection import PromptConnection
from vinedresser.queries.query import Query
from vinedresser.queries.standing import DEFAULT_RATE
from vinedresser.queries.table import Subscription
from vinedresser.store.json_values import shown

__all__ = ["AgentServer", "MOST_CLIENTS", "Outbox"]

# Answers for a client that does not read, or for the time until they are sent.
_MOST = 4096
MOST_CLIENTS = 32
# Bytes of a request's head; requests have no bodies.
_LARGEST_HEAD = 16 * 1024
# Seconds from one look at the answers to the next one: looking costs the training's thread less
# than being woken by it. At least so long a pause is between sending and looking again.
_PERIOD = 0.1
# The same after so many answers as would soon fill the queue of a client.
_PERIOD_OF_MANY, _MANY = 0.02, 500
_PAUSE = 0.005
# Seconds between two signs of life, with which the end of a client is noticed.
_SIGN = 1.0
_LONGEST_NAME = 200
_HOSTS = ("vinedresser", "localhost", "127.0.0.1")


class Outbox:
    """A bounded queue of answers; the oldest are dropped and counted.

    `put` is called on the training's thread and `take` on another one, without a lock.

    Args:
        most: maximum number of answers.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._answers: deque[Answer] = deque()
        self._most = most
        # Windows and events that the dropped answers stand for; and those told so far.
        self._missed = self._told = (0, 0)

    def put(self, answer: Answer) -> None:
        """Add an answer; never waits."""
        if len(self._answers) >= self._most:
            # The other thread may be faster.
            with suppress(IndexError):
                oldest, (dropped, thinned) = self._answers.popleft(), self._missed
                self._missed = dropped + 1 + oldest.dropped, thinned + oldest.thinned
        self._answers.append(answer)

    def take(self) -> list[Answer]:
        """Return the answers so far; the first one counts those that were dropped before it."""
        taken: list[Answer] = []
        while self._answers:
            taken.append(self._answers.popleft())
        missed, told = self._missed, self._told
        if taken and missed != told:
            first, self._told = taken[0], missed
            dropped, thinned = missed[0] - told[0], missed[1] - told[1]
            taken[0] = replace(
                first, dropped=first.dropped + dropped, thinned=first.thinned + thinned
            )
        return taken


class AgentServer:
    """Serves the clients of one rank on the agent's thread.

    Args:
        observer: the queries of the rank.
        describe: return the run, rank and step for `/status`.
        listener: the listening Unix socket.
        connections: receives the file descriptors of open connections, for forked children.
    """

    def __init__(
        self,
        observer: LiveObserver,
        describe: Callable[[], dict[str, Any]],
        listener: socket.socket,
        connections: set[int],
    ) -> None:
        self._observer = observer
        self._describe = describe
        self._listener = listener
        self._open: list[Subscription] = []
        self._closing = False
        routes = [
            Route("/status", self._status, methods=["GET"]),
            Route("/ask", self._ask, methods=["GET"]),
            Route("/flush", self._flush, methods=["POST"]),
        ]

        class Connection(_Connection):
            descriptors = connections

        config = Config(
            _OnlyLocal(Starlette(routes=routes)),
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            # Logging belongs to the training.
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=2 * MOST_CLIENTS,
            # So many connections are accepted at once, also of those that are then refused: the
            # training needs its file descriptors.
            backlog=MOST_CLIENTS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_LARGEST_HEAD,
        )
        self._server = _Server(config)

    def run(self) -> None:
        """Serve until `close`."""
        self._server.run(sockets=[self._listener])

    def close(self) -> None:
        """End, once the clients have got what was answered; from any thread."""
        self._closing = True
        self._server.stop()

    async def _status(self, _: Request) -> Response:
        observer = self._observer
        described = dict(observer.described)
        names = sorted({*_names(observer), *described})
        return JSONResponse(
            {
                **self._describe(),
                "events": {"step": None, "evaluation": None, **observer.events},
                "names": {name: described.get(name, "") for name in names},
                "offered": {event: list(one) for event, one in dict(observer.offered).items()},
                "streams": sorted({one.stream for one in self._open}),
            }
        )

    async def _ask(self, request: Request) -> Response:
        fields = request.query_params
        try:
            query = Query.parse(fields.get("query", ""))
            every = fields.get("every") or str(query.every)
            if str(query.every) != every:
                query = Query.parse(query.text, every)
            check_kinds(query.needs)
            stream = fields.get("stream", "")
            if len(stream) > _LONGEST_NAME:
                raise ConfigError(f"the name of a stream has at most {_LONGEST_NAME} characters")
            if len(self._open) >= MOST_CLIENTS:
                raise ConfigError(f"{MOST_CLIENTS} clients ask already")
            outbox = Outbox()
            rate = _rate(fields.get("rate"))
            found = self._observer.table.subscribe(query, outbox.put, stream=stream, rate=rate)
        except ConfigError as error:
            return PlainTextResponse(str(error), 400)
        self._open.append(found)
        return StreamingResponse(
            self._answers(found, outbox),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
        )

    async def _flush(self, request: Request) -> Response:
        stream = request.query_params.get("stream", "")
        found = [one for one in self._open if one.stream == stream]
        for one in found:
            one.flush()
        if not found:
            return PlainTextResponse(f"no client asks for a stream named {shown(stream)}", 404)
        return PlainTextResponse("")

    async def _answers(self, subscription: Subscription, outbox: Outbox) -> AsyncIterator[bytes]:
        """Yield answers as events until the query or the training ends, or the client goes.

        All but the first are brief.
        """
        loop = asyncio.get_running_loop()
        sent = loop.time()
        brief = False
        try:
            yield b": asking\n\n"
            while True:
                # First, so that the last answers are not missed.
                closing, looked = self._closing, loop.time()
                answers = outbox.take()
                if answers:
                    texts = [one.to_json(brief=brief or at > 0) for at, one in enumerate(answers)]
                    yield b"".join([b"data: %b\n\n" % text.encode() for text in texts])
                    sent, brief = loop.time(), True
                    if answers[-1].ended:
                        return
                elif loop.time() - sent > _SIGN:
                    yield b":\n\n"
                    sent = loop.time()
                if closing:
                    return
                period = _PERIOD if len(answers) < _MANY else _PERIOD_OF_MANY
                await asyncio.sleep(max(_PAUSE, looked + period - loop.time()))
        finally:
            subscription.close()
            self._open.remove(subscription)


class _Server(Server):
    """A server that sleeps between requests; uvicorn's looks ten times a second whether to end."""

    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Wait for the end."""
        await self.on_tick(0)
        self._ending = asyncio.Event()
        # From here on, `stop` wakes this thread.
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._ending.wait()

    def stop(self) -> None:
        """End; from any thread, at any time."""
        self.should_exit = True
        if self._loop is not None:
            # The loop may have ended by itself.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ending.set)


class _Connection(PromptConnection):
    """A connection of this user; others are closed."""

    descriptors: set[int]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse other users and too many connections."""
        connection = transport.get_extra_info("socket")
        self._number = connection.fileno()
        super().connection_made(transport)
        self.descriptors.add(self._number)
        if not peer_is_this_user(connection) or len(self.connections) > 2 * MOST_CLIENTS:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.descriptors.discard(self._number)
        super().connection_lost(exc)


class _OnlyLocal:
    """Refuses requests of web pages, which reach a socket that is forwarded to a port."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            host = headers.get(b"host", b"").decode("latin-1").rpartition(":")
            name = host[0] if host[1] and host[2].isdigit() else host[2]
            if name not in _HOSTS or b"origin" in headers or b"sec-fetch-site" in headers:
                app = PlainTextResponse("only for programs of this user", 403)
            elif headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
                app = PlainTextResponse("requests have no body", 413)
            elif sum(map(len, (scope["query_string"], *headers.values()))) > _LARGEST_HEAD:
                app = PlainTextResponse("the request is too large", 413)
        await app(scope, receive, send)


def _names(observer: LiveObserver) -> list[str]:
    """Return what can be captured, as far as is known."""
    names: list[str] = []
    # The training may change its model meanwhile.
    with suppress(RuntimeError):
        names.extend(observer.known())
    return names


def _rate(text: str | None) -> float | None:
    """Return the rate of a request."""
    if text is None:
        return DEFAULT_RATE
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise ConfigError(f"rate = {text!r}: must be a positive number of windows per second")
    return rate
