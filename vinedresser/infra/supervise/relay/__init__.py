"""The relay process: uploads a spool to the object store of its run."""

from __future__ import annotations

from vinedresser.infra.supervise.relay.relay import Relay

__all__ = ["Relay"]
