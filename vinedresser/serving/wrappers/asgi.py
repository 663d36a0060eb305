"""Recording the requests of an ASGI application, such as one of FastAPI or Starlette."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, TypeAlias

from vinedresser.errors import ConfigError
from vinedresser.serving.recording.items import Item
from vinedresser.serving.recording.recorder import RequestRecorder

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_Application: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]
# Entries of a body that hold several requests, as in the protocols of MLflow, TensorFlow Serving
# and others; the first one found counts.
_INPUTS = ("inputs", "instances", "dataframe_records")
_OUTPUTS = ("predictions", "outputs")


class RequestMiddleware:
    """Records the bodies of POST requests and of their responses, both JSON.

    Requests and responses pass through unchanged and at once, in parts if they are streamed; the
    bodies are decoded on the recorder's thread. Recorded are complete responses with a status from
    200 to 299, without a content encoding. Everything else only passes, such as WebSockets and the
    lifespan of the application.

    Args:
        paths: paths whose requests are recorded; None: all.
        read: returns inputs and outputs from the decoded bodies of request and response; None:
            `_read_bodies`.
        id_header: name of the header with the id of a request; without it, a request gets a new id.
        most_bytes: size of a body above which a request is not recorded.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        app: _Application,
        recorder: RequestRecorder,
        *,
        paths: Collection[str] | None = None,
        read: Callable[[Any, Any], tuple[Any, Any]] | None = None,
        id_header: str = "x-request-id",
        most_bytes: int = 1 << 18,
    ) -> None:
        if isinstance(paths, str):
            raise ConfigError(f"paths: {paths!r} is not a list of paths")
        self._app = app
        self._recorder = recorder
        self._paths = None if paths is None else frozenset(paths)
        self._read = read or _read_bodies
        self._id_header = id_header.lower().encode()
        self._most_bytes = most_bytes

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Handle a request; see the ASGI specification."""
        item = self._chosen(scope)
        if item is None:
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(item, self._recorder, self._read, self._most_bytes)
        note_request = self._recorder.faults.guard("recording a request", exchange.note_request)
        note_response = self._recorder.faults.guard("recording a response", exchange.note_response)

        async def receiving() -> _Message:
            message = await receive()
            note_request(message)
            return message

        async def sending(message: _Message) -> None:
            await send(message)
            note_response(message)

        await self._app(scope, receiving, sending)

    def _chosen(self, scope: _Message) -> Item | None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        if self._paths is not None and scope["path"] not in self._paths:
            return None
        found = (value for name, value in scope["headers"] if name == self._id_header)
        identity = next(found, None)
        return self._recorder.choose(None if identity is None else identity.decode("latin-1"))


class _Exchange:
    """One request and its response, as far as they are recorded."""

    def __init__(
        self,
        item: Item,
        recorder: RequestRecorder,
        read: Callable[[Any, Any], tuple[Any, Any]],
        most_bytes: int,
    ) -> None:
        self._item = item
        self._recorder = recorder
        self._read = read
        self._left = most_bytes
        self._request: list[bytes] = []
        self._response: list[bytes] = []
        self._whole = False
        self._over = False

    def note_request(self, message: _Message) -> None:
        """Take a part of the request's body."""
        if message["type"] == "http.request":
            self._take(self._request, message.get("body", b""))
            self._whole = not message.get("more_body", False)

    def note_response(self, message: _Message) -> None:
        """Take a part of the response that was sent; record the request after the last one."""
        if self._over:
            return
        if message["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in message.get("headers", ())}
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip()
            json_body = kind == b"application/json" or kind.endswith(b"+json")
            encoded = headers.get(b"content-encoding", b"identity") != b"identity"
            if not 200 <= message["status"] < 300 or not json_body or encoded:
                self._over = True
        elif message["type"] == "http.response.body":
            self._take(self._response, message.get("body", b""))
            if not message.get("more_body", False) and not self._over:
                self._over = True
                if self._whole:
                    self._record()
        else:
            # A file that the server sends by itself, for example.
            self._over = True

    def _take(self, parts: list[bytes], part: bytes) -> None:
        if self._over:
            return
        self._left -= len(part)
        if self._left < 0:
            self._over = True
            self._request.clear()
            self._response.clear()
            self._recorder.faults.report(
                "large", "a body is larger than most_bytes; such requests are not recorded"
            )
        else:
            # A server may reuse a buffer, but bytes are not copied.
            parts.append(bytes(part))

    def _record(self) -> None:
        bodies = b"".join(self._request), b"".join(self._response)
        read = self._read

        def read_both() -> tuple[Any, Any]:
            request, response = (_decoded(body) for body in bodies)
            return read(request, response)

        self._item.read = read_both
        self._item.size = 1024 + sum(map(len, bodies))
        self._recorder.record_later(self._item)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a body is not JSON: {error}") from error


def _read_bodies(request: Any, response: Any) -> tuple[Any, Any]:
    """Return inputs and outputs from decoded bodies.

    Several requests are a list, or an entry "inputs", "instances", "dataframe_records" or
    "dataframe_split" of an object; their outputs are a list, or an entry "predictions" or
    "outputs". Any other value is a single request or its output, such as
    ``{"age": 42, "city": "Bern"}`` and ``{"prediction": "yes", "confidence": 0.9}``.

    Args:
        request: decoded body of the request.
        response: decoded body of the response.

    Raises:
        ValueError: the columns of "dataframe_split" do not fit its data.
    """
    return _several(request, _INPUTS), _several(response, _OUTPUTS)


def _several(body: Any, entries: tuple[str, ...]) -> Any:
    if not isinstance(body, Mapping):
        return body
    split = body.get("dataframe_split")
    if isinstance(split, Mapping):
        rows = split["data"]
        return [dict(zip(split["columns"], row, strict=True)) for row in rows]
    entry = next((one for one in entries if isinstance(body.get(one), list | dict)), None)
    if entry is not None:
        return body[entry]
    return {name: [value] for name, value in body.items()}
