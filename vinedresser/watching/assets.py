"""Scripts and styles of the page of a store: files of this package, sent as they are."""

from __future__ import annotations

from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

__all__ = ["asset"]

_KINDS = {".js": "text/javascript", ".css": "text/css"}
_FOLDER = "page"


def asset(request: Request) -> Response:
    """Answer with a file; only those of the listing are read.

    Raises:
        HTTPException: no such file (404).
    """
    name = request.path_params["name"]
    for one in files("vinedresser.watching").joinpath(_FOLDER).iterdir():
        kind = next((kind for end, kind in _KINDS.items() if one.name.endswith(end)), None)
        if one.name == name and kind is not None:
            return Response(one.read_bytes(), media_type=kind)
    raise HTTPException(404, "no such file")
