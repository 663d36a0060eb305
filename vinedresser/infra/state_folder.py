"""The user's state on this machine: servers, and the local state of remote stores."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

__all__ = ["state_folder", "store_state_folder"]


def state_folder() -> Path:
    """Return the folder of this user's state, ``$XDG_STATE_HOME/vinedresser``."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state, "vinedresser")


def store_state_folder(url: str) -> Path:
    """Return the folder for the local state of an object store; it depends only on the URL.

    Args:
        url: URL of the store.
    """
    plain = url.rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain.partition("://")[2])[:60]
    # The cleaned names of different URLs may be equal.
    mark = hashlib.sha256(plain.encode()).hexdigest()[:8]
    return state_folder() / "stores" / f"{name}-{mark}"
