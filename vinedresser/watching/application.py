"""The pages as an ASGI application: a table of runs, an overview of each, and their updates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from vinedresser.errors import ConfigError, VinedresserError
from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.comparison.comparing import Comparison
from vinedresser.explain.reports.comparison.report import comparison_page
from vinedresser.explain.reports.templating import rendered
from vinedresser.explain.watching.view import View
from vinedresser.plain_logs import plain_logger
from vinedresser.plain_text import visible
from vinedresser.watching.access import client_of
from vinedresser.watching.chosen_runs import differences
from vinedresser.watching.controlling import FIELDS, control
from vinedresser.watching.curve_answers import (
    MOST_CURVES,
    CurveRequest,
    curve_answer,
    run_numbers,
)
from vinedresser.watching.metrics import metrics_text
from vinedresser.watching.query_panel import MOST_PANELS
from vinedresser.watching.watched_store import WatchedRun, WatchedStore

_LOG = plain_logger(__name__)
_MOST_DIGITS = 18
# What the numbers in requests are numbers of.
_NUMBERED = {"step": "step", "since": "revision"}
_KINDS = {".js": "text/javascript", ".css": "text/css"}
_FOLDER = "page"


def application(store: WatchedStore) -> Starlette:
    """Return the application of a store; who may use it is for `Access` to decide."""
    pages = _Pages(store)
    return Starlette(
        routes=[
            Route("/", pages.front),
            Route("/runs", pages.rows),
            Route("/metrics", pages.metrics),
            Route("/curves", pages.curves),
            Route("/differences", pages.differences),
            Route("/compare.html", pages.comparison),
            Route("/assets/{name}", _asset),
            Route("/run/{name}", pages.run),
            Route("/run/{name}/view", pages.run_view),
            Route("/run/{name}/moment", pages.moment),
            Route("/run/{name}/panel", pages.panel),
            Route("/run/{name}/control", pages.control, methods=["POST"]),
        ]
    )


class _Pages:
    """Answers; Starlette calls them in threads of its own."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store

    def front(self, request: Request) -> Response:
        if self._store.single:
            return self._run_page(request, self._store.only)
        contents = {"location": str(self._store.location), "most_curves": MOST_CURVES}
        return HTMLResponse(rendered("store.html.j2", **contents, nonce=request.scope["nonce"]))

    def rows(self, request: Request) -> Response:
        since = _whole(request, "since") if "since" in request.query_params else 0
        return JSONResponse(self._store.table.changes(since))

    def metrics(self, _request: Request) -> Response:
        found = self._store.table.changes(0)
        if not found["complete"]:
            # Fewer runs than there are would look like removed ones.
            raise HTTPException(503, found["problem"] or "the store has not been read yet")
        text = metrics_text(found["rows"], found["problem"])
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def curves(self, request: Request) -> Response:
        with _refusals():
            asked = CurveRequest.of(request.query_params)
            return JSONResponse(curve_answer(self._store.table, asked))

    def differences(self, request: Request) -> Response:
        with _refusals():
            return JSONResponse(differences(self._compared(request)))

    def comparison(self, request: Request) -> Response:
        with _refusals():
            page = comparison_page(self._compared(request))
        # To be saved: the policy of this server's pages would keep out its styles.
        named = {"Content-Disposition": 'attachment; filename="compare.html"'}
        return HTMLResponse(page, headers=named)

    def _compared(self, request: Request) -> Comparison:
        numbers = run_numbers(request.query_params.get("runs", ""))
        return self._store.compare(numbers, request.query_params.get("metric", ""))

    def run(self, request: Request) -> Response:
        return self._run_page(request, request.path_params["name"])

    def run_view(self, request: Request) -> Response:
        return _update(request, self._watched(request.path_params["name"]).feed.latest())

    def moment(self, request: Request) -> Response:
        step = _whole(request, "step")
        watched = self._watched(request.path_params["name"])
        with _refusals():
            return HTMLResponse(watched.moment(step))

    def panel(self, request: Request) -> Response:
        watched = self._watched(request.path_params["name"])
        with _refusals():
            panel = watched.panel(request.query_params.get("query", ""))
        return _update(request, panel.feed.latest())

    def control(self, request: Request) -> Response:
        person, name = request.scope["person"], request.path_params["name"]
        asked = " ".join(visible(request.query_params.get(one, "")) for one in FIELDS).strip()
        who = f"{client_of(request.scope)}: {person.name}: {asked} {visible(name)}"
        try:
            with _refusals():
                storage = self._watched(name).storage
                told = visible(control(storage, request.query_params, person.name))
        except HTTPException as error:
            _LOG.info("%s: %s", who, error.detail)
            raise
        _LOG.info("%s: %s", who, told)
        return PlainTextResponse(f"{told}\n")

    def _run_page(self, request: Request, name: str) -> Response:
        view = self._watched(name).feed.latest()
        path = f"/run/{quote(name, safe='')}"
        contents = {"view": view, "body": Svg(view.html), "path": path, "most_panels": MOST_PANELS}
        contents |= {"single": self._store.single, "nonce": request.scope["nonce"]}
        contents["control"] = request.scope["person"].rights == "control"
        return HTMLResponse(rendered("watch.html.j2", **contents))

    def _watched(self, name: str) -> WatchedRun:
        with _refusals():
            found = self._store.run(name)
        if found is None:
            raise HTTPException(404, "the store has no run of this name")
        return found


@contextmanager
def _refusals() -> Iterator[None]:
    """Answer 400 to what is wrong in a request, and 503 if the storage refuses."""
    try:
        yield
    except ConfigError as error:
        raise HTTPException(400, visible(str(error))) from error
    except VinedresserError as error:
        raise HTTPException(503, visible(str(error))) from error


def _whole(request: Request, field: str) -> int:
    text = request.query_params.get(field, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise HTTPException(400, f"{field}: give the number of a {_NUMBERED[field]}")
    return int(text)


def _update(request: Request, view: View) -> Response:
    """Return a view, or 204 if the page has it already."""
    if request.query_params.get("seen") == view.version:
        return Response(status_code=204)
    fields = {"version": view.version, "title": visible(view.title), "state": view.state}
    return JSONResponse(fields | {"html": view.html, "over": view.over, "steps": view.steps})


def _asset(request: Request) -> Response:
    """Answer with a file; only those of the listing are read."""
    name = request.path_params["name"]
    for one in files("vinedresser.watching").joinpath(_FOLDER).iterdir():
        kind = next((kind for end, kind in _KINDS.items() if one.name.endswith(end)), None)
        if one.name == name and kind is not None:
            return Response(one.read_bytes(), media_type=kind)
    raise HTTPException(404, "no such file")
