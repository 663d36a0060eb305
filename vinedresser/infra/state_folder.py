"""What is kept of this user on this machine beside runs: servers, and the state of far stores."""

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
    """Return the folder of what a flow on an object store keeps here; always the same for a store.

    Args:
        url: of the store.
    """
    plain = url.rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain.partition("://")[2])[:60]
    # Different names may have become the same.
    mark = hashlib.sha256(plain.encode()).hexdigest()[:8]
    return state_folder() / "stores" / f"{name}-{mark}"
