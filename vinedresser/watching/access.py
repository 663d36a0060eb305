"""Who may use the pages: a browser with the printed key, or people with tokens of their own.

Loopback is open to every user of the machine and to every web page in the browser. So the server
asks for a key or a token. It refuses names of other hosts, by which a page of elsewhere would come
in after rebinding its name (DNS) to this server, and requests that other sites cause.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vinedresser.errors import ConfigError
from vinedresser.plain_logs import plain_logger
from vinedresser.processes import user_name
from vinedresser.watching.people import People, Person, Rights, person_of
from vinedresser.watching.site import Site

__all__ = ["KEY_VARIABLE", "Access", "client_of"]

# Names the key of programs.
KEY_VARIABLE = "VINEDRESSER_WATCH_KEY"

_LOG = plain_logger(__name__)
_KEY_BYTES = 32
_KEY = re.compile(r"[A-Za-z0-9_-]{32,200}")
# The only path to which anything is sent.
_CONTROL = re.compile(r"/run/[^/]+/control")
_REALM = {"WWW-Authenticate": 'Basic realm="vinedresser watch", charset="UTF-8"'}
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
    """Lets requests of people with access through to an application; answers get strict headers.

    Without people, the address with the key sets a cookie, whose value is another secret, and leads
    to the page without the key. All ports of a host share their cookies, so the cookie's name has
    the port. Who has it counts as the owner of the server, and reads unless more is given.

    With people, a request has a token as in RFC 6750 (``Bearer``) or, as browsers ask for it, as
    the password of a name (``Basic``, RFC 7617).

    Programs, such as Prometheus, get /metrics with a key of their own as a bearer token. It stays
    the same, so it is in no address: those are printed, and kept in logs and histories. Whether the
    server answers, at /health, everyone may ask.

    Args:
        site: where it is served.
        program_key: the key of programs; "": none is let through.
        people: who may use the pages; None: the owner, with the printed key.
        owner: rights that the printed key gives.

    Raises:
        ConfigError: the key of programs can be guessed.

    Attributes:
        address: the address that opens the page, with the key if there are no people.
    """

    def __init__(
        self,
        application: ASGIApp,
        site: Site,
        program_key: str = "",
        people: People | None = None,
        owner: Rights = "read",
    ) -> None:
        self._application = application
        if program_key and not _KEY.fullmatch(program_key):
            raise ConfigError(
                f"{KEY_VARIABLE}: must have at least 32 letters, digits, - or _, as from "
                "`openssl rand -hex 16`"
            )
        self._program_key = program_key
        self._site = site
        self._people = people
        self._owner = Person(user_name() or "the owner", owner)
        self._key = secrets.token_urlsafe(_KEY_BYTES)
        self._session = secrets.token_urlsafe(_KEY_BYTES)
        self._cookie = f"vinedresser_watch_{site.port}"
        self.address = site.address if people is not None else f"{site.address}?key={self._key}"

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
        headers, path = Headers(scope=scope), scope["path"]
        if foreign := self._foreign(headers):
            return _refused(foreign)
        posted = scope["method"] == "POST" and _CONTROL.fullmatch(path)
        if scope["method"] not in ("GET", "HEAD") and not posted:
            return PlainTextResponse("only GET is served here", 405, {"Allow": "GET, HEAD"})
        if path == "/health":
            return PlainTextResponse("ok\n")
        given = _Credentials.of(headers)
        if path == "/metrics" and given.bearer and _same(given.token, self._program_key):
            return None
        return self._not_admitted(scope, headers, given) or (
            self._not_allowed(scope, headers, given) if posted else None
        )

    def _not_admitted(self, scope: Scope, headers: Headers, given: _Credentials) -> ASGIApp | None:
        """Return the answer to a stranger, or to the key; None for a person, who is noted."""
        key = parse_qs(scope["query_string"].decode("latin-1")).get("key")
        if scope["path"] == "/" and key and self._people is None:
            right = _same(key[0], self._key)
            return self._admission(scope["nonce"]) if right else _refused("the key is wrong")
        # A link of another site opens no page, even if the browser were to send what it knows.
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _refused("requests of other sites are refused")
        person = self._person(scope, headers, given)
        if person is None:
            return self._stranger()
        scope["person"] = person
        return None

    def _person(self, scope: Scope, headers: Headers, given: _Credentials) -> Person | None:
        """Return who asks; None if it is a stranger."""
        if self._people is None:
            right = _same(_cookie_of(headers, self._cookie), self._session)
            return self._owner if right else None
        people = self._people.now()
        person = person_of(people, given.token, given.name)
        if person is None and given.token:
            # Not any other name: it may be a token in the wrong place.
            known = any(given.name == one.name for one in people)
            _LOG.info(
                "%s: wrong token of %s", client_of(scope), given.name if known else "a stranger"
            )
        return person

    def _stranger(self) -> PlainTextResponse:
        if self._people is not None:
            return PlainTextResponse("refused: give your name and your token\n", 401, _REALM)
        return _refused("open the address that vinedresser watch has printed, with its key")

    def _not_allowed(self, scope: Scope, headers: Headers, given: _Credentials) -> ASGIApp | None:
        """Return the answer to a change that is not allowed; None: let it through."""
        person: Person = scope["person"]
        if person.rights != "control":
            _LOG.info(
                "%s: %s may not control trainings: refused %r",
                *(client_of(scope), person.name, scope["path"]),
            )
            hint = "" if self._people is not None else "; start vinedresser watch with --control"
            return _refused(f"{person.name} may read, and not control trainings{hint}")
        # Browsers send the cookie, and the token of a name, with requests of any page; and the
        # origin with each POST.
        if not (self._people is not None and given.bearer) and headers.get("origin") is None:
            return _refused("send a bearer token, or the header Origin")
        return None

    def _foreign(self, headers: Headers) -> str:
        """Return why a request is refused that is for another host or from another site, or ""."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._site.hosts:
            return f"this server answers to {' and '.join(self._site.names)} only"
        origins = headers.getlist("origin")
        if any(origin not in self._site.origins for origin in origins):
            return "requests of other sites are refused"
        return ""

    def _admission(self, nonce: str) -> ASGIApp:
        """Return a page that sets the cookie and moves on.

        A redirect would not do: if another page opened the address, such as a terminal in a
        browser, the redirected request would not have the strict cookie.
        """
        answer = HTMLResponse(_ADMITTED.format(nonce=nonce))
        answer.set_cookie(
            *(self._cookie, self._session),
            httponly=True,
            samesite="strict",
            path="/",
            secure=self._site.secure,
        )
        return answer


class _Credentials(NamedTuple):
    """What a request says of who sends it.

    Attributes:
        token: the token; "" if there is none, or if the header is malformed or sent twice.
        name: the name that is given with it; None: none.
        bearer: it is a bearer token, which no browser sends by itself.
    """

    token: str = ""
    name: str | None = None
    bearer: bool = False

    @classmethod
    def of(cls, headers: Headers) -> _Credentials:
        given = headers.getlist("authorization")
        scheme, _, value = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() == "bearer":
            return cls(value.strip(), None, bearer=True)
        if scheme.lower() != "basic":
            return cls()
        try:
            pair = base64.b64decode(value.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return cls()
        name, colon, token = pair.partition(":")
        return cls(token, name) if colon else cls()


def client_of(scope: Scope) -> str:
    """Return the address from which a request comes."""
    return str(scope["client"][0]) if scope.get("client") else "unknown"


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
    return bool(secret) and hmac.compare_digest(given.encode(errors="replace"), secret.encode())


def _cookie_of(headers: Headers, name: str) -> str:
    """Return the value of a cookie; "" if there is none or the header is malformed."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
