"""Who may read the pages: the browser that was given the key, on this machine, from no other site.

Loopback is open to every user of the machine and to every web page in the browser. So the server
asks for a key. It refuses names of other hosts, by which a page of elsewhere would come in after
rebinding its name (DNS) to 127.0.0.1, and requests that other sites cause.
"""

from __future__ import annotations

import hmac
import re
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vinedresser.errors import ConfigError

__all__ = ["KEY_VARIABLE", "Access"]

# Names the key of programs.
KEY_VARIABLE = "VINEDRESSER_WATCH_KEY"

_KEY_BYTES = 32
_KEY = re.compile(r"[A-Za-z0-9_-]{32,200}")
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    # Lengths of bars and colours of legends; the attributes are written by our templates only.
    "style-src-attr 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

_ADMITTED = (
    '<!DOCTYPE html><title>vinedresser watch</title><a href="/">Open the page</a>'
    '<script nonce="{nonce}">location.replace("/" + location.hash)</script>'
)


class Access:
    """Lets requests with the key through to an application; all answers get strict headers.

    The address with the key sets a cookie, whose value is another secret, and leads to the page
    without the key. All ports of a host share their cookies, so the cookie's name has the port.

    Programs, such as Prometheus, get /metrics with a key of their own as a bearer token. It stays
    the same, so it is in no address: those are printed, and kept in logs and histories. Whether the
    server answers, at /health, everyone on this machine may ask.

    Args:
        port: port of the server.
        program_key: the key of programs; "": none is let through.

    Raises:
        ConfigError: the key of programs can be guessed.

    Attributes:
        address: the address that opens the page, with the key.
    """

    def __init__(self, application: ASGIApp, port: int, program_key: str = "") -> None:
        self._application = application
        if program_key and not _KEY.fullmatch(program_key):
            raise ConfigError(
                f"{KEY_VARIABLE}: must have at least 32 letters, digits, - or _, as from "
                "`openssl rand -hex 16`"
            )
        self._token = f"Bearer {program_key}" if program_key else ""
        self._key = secrets.token_urlsafe(_KEY_BYTES)
        self._session = secrets.token_urlsafe(_KEY_BYTES)
        self._cookie = f"vinedresser_watch_{port}"
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.address = f"http://127.0.0.1:{port}/?key={self._key}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            # No WebSocket is served.
            return
        nonce = secrets.token_urlsafe(16)
        scope["nonce"] = nonce

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                _set_strict(MutableHeaders(scope=message), nonce)
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._application)(scope, receive, send_strictly)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer to a request without access, or with the key; None: let it through."""
        headers = Headers(scope=scope)
        if foreign := self._foreign(headers):
            return _refused(foreign)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("only GET is served", 405, {"Allow": "GET, HEAD"})
        if scope["path"] == "/health":
            return PlainTextResponse("ok\n")
        given_token = headers.get("authorization", "")
        if scope["path"] == "/metrics" and self._token and _same(given_token, self._token):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("key")
        if scope["path"] == "/" and given:
            right = _same(given[0], self._key)
            return self._admission(scope["nonce"]) if right else _refused("the key is wrong")
        return _refused(stranger) if (stranger := self._stranger(headers)) else None

    def _stranger(self, headers: Headers) -> str:
        """Return why a request is refused that this browser tab did not make, or ""."""
        # A link of another site opens no page, even if the browser were to send the cookie.
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return "requests of other sites are refused"
        if not _same(_cookie_of(headers, self._cookie), self._session):
            return "open the address that vinedresser watch has printed, with its key"
        return ""

    def _foreign(self, headers: Headers) -> str:
        """Return why a request is refused that is for another host or from another site, or ""."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return "this server answers to 127.0.0.1 and localhost only"
        origin = headers.get("origin")
        if origin is not None and origin not in [f"http://{host}" for host in self._hosts]:
            return "requests of other sites are refused"
        return ""

    def _admission(self, nonce: str) -> ASGIApp:
        """Return a page that sets the cookie and moves on.

        A redirect would not do: if another page opened the address, such as a terminal in a
        browser, the redirected request would not have the strict cookie.
        """
        answer = HTMLResponse(_ADMITTED.format(nonce=nonce))
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return answer


def _set_strict(headers: MutableHeaders, nonce: str) -> None:
    headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
    headers["Cache-Control"] = "no-store"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"


def _refused(reason: str) -> PlainTextResponse:
    return PlainTextResponse(f"refused: {reason}\n", 403)


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), secret.encode())


def _cookie_of(headers: Headers, name: str) -> str:
    """Return the value of a cookie; "" if there is none or the header is malformed."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
