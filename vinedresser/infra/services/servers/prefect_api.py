"""Requests to the API of a Prefect server on this machine, without importing prefect."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64encode
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

from vinedresser.objects.retrying import backoff, retry


def ask_prefect(
    url: str, password: str, method: str, path: str, body: object = None, *, timeout: float = 10.0
) -> Any:
    """Send a request and return the answer's JSON, or None if the answer is empty.

    Prefect answers 503 if the request is to be repeated, for example while its database is locked.

    Args:
        url: URL of the server, without ``/api``.
        password: ``user:password``.
        method: HTTP method.
        path: path below ``URL/api``.
        timeout: seconds to wait for the answer, and during which the request is repeated.

    Raises:
        OSError: the server does not answer, or refused.
    """
    request = urllib.request.Request(  # noqa: S310 - it is http, on loopback
        f"{url}/api/{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={
            "Authorization": f"Basic {b64encode(password.encode()).decode()}",
            "Content-Type": "application/json",
        },
    )
    # Without a proxy, even if the environment names one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def send() -> Any:
        with opener.open(request, timeout=timeout) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    return retry(
        send,
        HTTPError,
        backoff(0.25, 4.0),
        timeout=timeout,
        when=lambda error: error.code == HTTPStatus.SERVICE_UNAVAILABLE,
        on_failure=HTTPError.close,
    )
