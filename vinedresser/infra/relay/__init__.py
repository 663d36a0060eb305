"""The relay: the process that brings a spool's content to the object store where its run lies."""

from __future__ import annotations

from vinedresser.infra.relay.relay import Relay

__all__ = ["Relay"]
