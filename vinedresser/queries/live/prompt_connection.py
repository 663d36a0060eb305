"""HTTP connections that send their requests in time; others are closed."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds to send a request.
_PATIENCE = 10.0


class PromptConnection(H11Protocol):
    """A connection that is closed if it stays silent, or if it never completes a request.

    Uvicorn itself waits without an end for the first request, and for one that has begun.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(transport)
        # The latest request that was seen.
        self._answered = self.cycle
        self._late = self.loop.call_later(_PATIENCE, self._end_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._late.cancel()
        super().connection_lost(exc)

    def _end_if_silent(self) -> None:
        if self.conn.their_state is h11.IDLE and self.cycle is self._answered:
            self.transport.abort()
            return
        self._answered = self.cycle
        self._late = self.loop.call_later(_PATIENCE, self._end_if_silent)
