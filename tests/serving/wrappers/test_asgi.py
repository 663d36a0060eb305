"""The middleware passes everything on unchanged, and records complete JSON exchanges."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.serving.unlimited import UNLIMITED
from vinedresser.errors import ConfigError
from vinedresser.serving import RequestMiddleware, RequestRecorder, RequestStore

JSON = [(b"content-type", b"application/json")]


def reply(
    *bodies: bytes, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = tuple(JSON)
) -> list[dict[str, Any]]:
    """Return the messages of a response whose body comes in parts."""
    start = {"type": "http.response.start", "status": status, "headers": [*headers]}
    parts = [
        {"type": "http.response.body", "body": body, "more_body": place < len(bodies)}
        for place, body in enumerate(bodies, start=1)
    ]
    return [start, *parts]


def application(messages: list[dict[str, Any]], *, reads: bool = True) -> Any:
    """Return an application that reads the request and then sends messages."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while reads:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        for message in messages:
            await send(message)

    return app


def exchange(
    app: Any, *parts: bytes, headers: Iterable[tuple[bytes, bytes]] = (), **scope: Any
) -> list[dict[str, Any]]:
    """Send a request whose body comes in parts, and return what the application sent."""
    waiting = [
        {"type": "http.request", "body": part, "more_body": place < len(parts)}
        for place, part in enumerate(parts, start=1)
    ] + [{"type": "http.disconnect"}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    whole = {"type": "http", "method": "POST", "path": "/predict", "headers": [*headers], **scope}
    asyncio.run(app(whole, receive, send))
    return sent


@pytest.fixture
def recorder(tmp_path: Path) -> Any:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    yield recorder
    recorder.close()


def recorded(recorder: RequestRecorder) -> Any:
    assert recorder.flush(60)
    if not Path(recorder.location).exists():
        return None
    found = RequestStore(recorder.location).after(None)[0]
    return found if len(found) else None


@pytest.mark.parametrize(
    ("request_body", "response_body", "prediction", "ids"),
    [
        ({"age": 3, "city": "x"}, {"prediction": "no", "confidence": 0.5}, ["no"], ["r7"]),
        ([{"age": 3}, {"age": 4}], [0, 1], [0, 1], ["r7/0", "r7/1"]),
        ({"inputs": [[3.0], [4.0]]}, {"predictions": [[1, 9], [9, 1]]}, [1, 0], ["r7/0", "r7/1"]),
        ({"instances": [{"age": 3}]}, {"outputs": [2.5]}, [2.5], ["r7"]),
        (
            {"dataframe_split": {"columns": ["age"], "data": [[3], [4]]}},
            {"predictions": ["a", "b"]},
            ["a", "b"],
            ["r7/0", "r7/1"],
        ),
    ],
)
def test_json_bodies_are_recorded(
    recorder: RequestRecorder, request_body: Any, response_body: Any, prediction: Any, ids: Any
) -> None:
    messages = reply(json.dumps(response_body).encode())
    app = RequestMiddleware(application(messages), recorder, paths=["/predict"])
    content = json.dumps(request_body).encode()
    parts = content[:4], content[4:9], content[9:]
    assert exchange(app, *parts, headers=[(b"x-request-id", b"r7")]) == messages
    found = recorded(recorder)
    assert found.columns["prediction"].tolist() == prediction
    assert list(found.ids) == ids
    assert found.columns.get("age", found.columns.get("x0"))[0] == 3.0
    assert recorder.problems == []


def test_a_response_in_parts_passes_through_in_parts(recorder: RequestRecorder) -> None:
    messages = reply(b'{"predictions"', b": [1", b", 2]}")
    app = RequestMiddleware(application(messages), recorder)
    assert exchange(app, b"[1, 2]") == messages
    assert recorded(recorder).columns["prediction"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("messages", "scope"),
    [
        (reply(b"{}", status=500), {}),
        (reply(b"<p>", headers=[(b"content-type", b"text/html")]), {}),
        (reply(b"\x1f\x8b", headers=[*JSON, (b"content-encoding", b"gzip")]), {}),
        (reply(b"{}")[:1], {}),
        (reply(b"{}", b"}")[:2], {}),
        (reply(b"[1]"), {"method": "GET"}),
        (reply(b"[1]"), {"path": "/health"}),
        ([*reply(b"")[:1], {"type": "http.response.pathsend", "path": "/x"}], {}),
    ],
)
def test_other_exchanges_only_pass(
    recorder: RequestRecorder, messages: list[dict[str, Any]], scope: dict[str, Any]
) -> None:
    app = RequestMiddleware(application(messages), recorder, paths=["/predict"])
    assert exchange(app, b"[1]", **scope) == messages
    assert recorded(recorder) is None
    assert recorder.problems == []


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
def test_other_protocols_only_pass(recorder: RequestRecorder, kind: str) -> None:
    scopes = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append((scope, receive, send))

    scope, calls = {"type": kind}, (object(), object())
    asyncio.run(RequestMiddleware(app, recorder)(scope, *calls))  # type: ignore[arg-type]
    assert scopes == [(scope, *calls)]


def test_a_client_that_disconnects_is_not_recorded(recorder: RequestRecorder) -> None:
    app = RequestMiddleware(application(reply(b"[1]")), recorder)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None: ...

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    asyncio.run(app(scope, receive, send))
    assert recorded(recorder) is None


@pytest.mark.parametrize(
    ("request_body", "response_body", "message"),
    [
        (b"not JSON", b"[1]", "a body is not JSON"),
        (b"[1]", b'{"a":', "a body is not JSON"),
        (b"[" * 100_000, b"[1]", "a body is not JSON"),
        (b"[1, 2]", b"[1, 2, 3]", "2 requests, but outputs of 3"),
        (b"[1]" + b" " * 300_000, b"[1]", "larger than most_bytes"),
        (b"[1]", b"[1]" + b" " * 300_000, "larger than most_bytes"),
        (b'{"dataframe_split": {"columns": ["a"], "data": [[1, 2]]}}', b"[1]", "zip"),
    ],
)
def test_what_cannot_be_read_is_reported_and_passes(
    recorder: RequestRecorder, request_body: bytes, response_body: bytes, message: str
) -> None:
    messages = reply(response_body)
    app = RequestMiddleware(application(messages), recorder)
    assert exchange(app, request_body) == messages
    recorded(recorder)
    assert message in "".join(recorder.problems)


def test_an_error_of_the_application_is_its_own(recorder: RequestRecorder) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise LookupError("from the application")

    with pytest.raises(LookupError, match="from the application"):
        exchange(RequestMiddleware(app, recorder), b"[1]")


def test_a_function_reads_the_bodies(recorder: RequestRecorder) -> None:
    read: Callable[[Any, Any], Any] = lambda request, response: (  # noqa: E731
        {"length": [len(request["text"])]},
        response["label"],
    )
    app = RequestMiddleware(application(reply(b'{"label": "spam"}')), recorder, read=read)
    exchange(app, b'{"text": "hello"}')
    found = recorded(recorder)
    assert found.columns["length"].tolist() == [5.0]
    assert found.columns["prediction"].tolist() == ["spam"]


def test_a_closed_recorder_only_passes(recorder: RequestRecorder) -> None:
    recorder.close()
    messages = reply(b"[1]")
    assert exchange(RequestMiddleware(application(messages), recorder), b"[1]") == messages


def test_paths_must_be_a_list(recorder: RequestRecorder) -> None:
    with pytest.raises(ConfigError, match="paths: '/predict' is not a list"):
        RequestMiddleware(application([]), recorder, paths="/predict")


def test_a_body_without_requests_is_not_recorded(recorder: RequestRecorder) -> None:
    for rows in ([], [[3.0]], []):
        app = RequestMiddleware(
            application(reply(json.dumps({"predictions": [1] * len(rows)}).encode())), recorder
        )
        exchange(app, json.dumps({"instances": rows}).encode(), headers=[])
        assert recorder.flush(60)
    assert recorded(recorder).columns["x0"].tolist() == [3.0]
    assert recorder.problems == []
    assert recorder.dropped == 0
