"""The action that notifies a server over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult, retry
from vinedresser.rules.actions.payloads import payload
from vinedresser.rules.actions.settings import NotifySettings

# Timeout in seconds for each attempt.
_TIMEOUT = 10.0
# Status codes after which another attempt may succeed: timeout, too early, too many requests.
_LATER = frozenset({408, 425, 429})


class NotifyAction:
    """POSTs a message about a run as JSON, in the shape that the receiver takes.

    The header ``Idempotency-Key`` holds the action's id: a judge that is killed before it records
    the reply repeats the request. Redirections are not followed, since they could lead to an
    unencrypted connection.

    Args:
        settings: address of the server.
    """

    name: ClassVar[str] = "notify"

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings
        self._opener = urllib.request.build_opener(_NoRedirection)

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        body = payload(context.document, self._settings.format)
        # The scheme was checked with the settings.
        request = urllib.request.Request(  # noqa: S310
            self._settings.url(),
            data=json.dumps(body, allow_nan=False).encode(),
            headers={
                "Content-Type": "application/json",
                "Idempotency-Key": context.id,
                "User-Agent": "vinedresser",
            },
            method="POST",
        )
        return retry(lambda: self._post(request), self._settings.patience, context.giving_up)

    def _post(self, request: urllib.request.Request) -> ActionResult:
        # The rest of the URL may be secret.
        where = request.host
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as reply:
                return ActionResult("done", f"{where} replied {reply.status}")
        except urllib.error.HTTPError as error:
            error.close()
            later = error.code in _LATER or error.code >= 500
            return ActionResult("failed" if later else "refused", f"{where} replied {error.code}")
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            return ActionResult("failed", f"{where}: {type(error).__name__}: {reason}")


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirection; the reply then counts as an error."""
