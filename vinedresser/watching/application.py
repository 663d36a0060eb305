"""The pages as an ASGI application: a table of runs, an overview of each, and their updates."""

from __future__ import annotations

from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from vinedresser.errors import ConfigError, VinedresserError
from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.reports.templating import rendered
from vinedresser.explain.watching.view import View
from vinedresser.plain_text import visible
from vinedresser.watching.query_panel import MOST_PANELS
from vinedresser.watching.watched_store import WatchedRun, WatchedStore

__all__ = ["application"]

_MOST_DIGITS = 18


def application(store: WatchedStore) -> Starlette:
    """Return the application of a store; who may use it is for `Access` to decide.

    Args:
        store: the store.
    """
    pages = _Pages(store)
    return Starlette(
        routes=[
            Route("/", pages.front),
            Route("/view", pages.table_view),
            Route("/run/{name}", pages.run),
            Route("/run/{name}/view", pages.run_view),
            Route("/run/{name}/moment", pages.moment),
            Route("/run/{name}/panel", pages.panel),
        ]
    )


class _Pages:
    """Answers; Starlette calls them in threads of its own."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store

    def front(self, request: Request) -> Response:
        if self._store.single:
            return self._run_page(request, self._store.only)
        return _page(request, self._store.table.latest(), "", single=False)

    def table_view(self, request: Request) -> Response:
        return _update(request, self._store.table.latest())

    def run(self, request: Request) -> Response:
        return self._run_page(request, request.path_params["name"])

    def run_view(self, request: Request) -> Response:
        return _update(request, self._watched(request.path_params["name"]).feed.latest())

    def moment(self, request: Request) -> Response:
        step = request.query_params.get("step", "")
        if not (step.isascii() and step.isdigit() and len(step) <= _MOST_DIGITS):
            raise HTTPException(400, "step: give the number of a step")
        watched = self._watched(request.path_params["name"])
        try:
            return HTMLResponse(watched.moment(int(step)))
        except VinedresserError as error:
            raise HTTPException(503, visible(str(error))) from error

    def panel(self, request: Request) -> Response:
        watched = self._watched(request.path_params["name"])
        try:
            panel = watched.panel(request.query_params.get("query", ""))
        except ConfigError as error:
            raise HTTPException(400, visible(str(error))) from error
        except VinedresserError as error:
            raise HTTPException(503, visible(str(error))) from error
        return _update(request, panel.feed.latest())

    def _run_page(self, request: Request, name: str) -> Response:
        view = self._watched(name).feed.latest()
        path = f"/run/{quote(name, safe='')}"
        return _page(request, view, path, single=self._store.single)

    def _watched(self, name: str) -> WatchedRun:
        try:
            found = self._store.run(name)
        except VinedresserError as error:
            raise HTTPException(503, visible(str(error))) from error
        if found is None:
            raise HTTPException(404, "the store has no run of this name")
        return found


def _page(request: Request, view: View, path: str, *, single: bool) -> Response:
    """Return a whole page.

    Args:
        request: the request.
        view: its contents now.
        path: address of the run; "" for the table.
        single: there is no table.
    """
    contents = {"view": view, "body": Svg(view.html), "path": path, "steps": bool(path)}
    contents |= {"single": single, "most_panels": MOST_PANELS}
    return HTMLResponse(rendered("watch.html.j2", **contents, nonce=request.scope["nonce"]))


def _update(request: Request, view: View) -> Response:
    """Return a view, or 204 if the page has it already."""
    if request.query_params.get("seen") == view.version:
        return Response(status_code=204)
    fields = {"version": view.version, "title": visible(view.title), "state": view.state}
    return JSONResponse(fields | {"html": view.html, "over": view.over, "steps": view.steps})
