"""Telling a server of a finding."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, ClassVar

from vinedresser.rules.actions.base import ActionContext, ActionResult
from vinedresser.rules.actions.retry import retry
from vinedresser.rules.actions.settings import NotifySettings

__all__ = ["NotifyAction"]

# Seconds for one try.
_TIMEOUT = 10.0
# Answers after which another try may succeed: timeout, too early, too many requests.
_LATER = frozenset({408, 425, 429})


class NotifyAction:
    """POSTs a finding and the facts of its run as JSON.

    The header ``Idempotency-Key`` has the id: it comes again where a judge was killed before it
    could note that the server had taken it. A redirection is not followed: it might lead to where
    nothing is encrypted.

    Args:
        settings: where to.
    """

    name: ClassVar[str] = "notify"

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings
        self._opener = urllib.request.build_opener(_NoRedirection)

    def take(self, context: ActionContext) -> ActionResult:
        """See `Action.take`."""
        # The scheme was checked with the settings.
        request = urllib.request.Request(  # noqa: S310
            self._settings.url(),
            data=json.dumps(context.document, allow_nan=False).encode(),
            headers={
                "Content-Type": "application/json",
                "Idempotency-Key": context.id,
                "User-Agent": "vinedresser",
            },
            method="POST",
        )
        return retry(lambda: self._post(request), self._settings.patience, context.giving_up)

    def _post(self, request: urllib.request.Request) -> ActionResult:
        # The rest of the URL may be a secret.
        where = request.host
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                return ActionResult("done", f"{where} answered {answer.status}")
        except urllib.error.HTTPError as error:
            error.close()
            later = error.code in _LATER or error.code >= 500
            return ActionResult("failed" if later else "refused", f"{where} answered {error.code}")
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            return ActionResult("failed", f"{where}: {type(error).__name__}: {reason}")


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none; the answer then counts as an error."""
