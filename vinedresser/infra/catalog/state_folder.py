"""The user's state on this machine: servers, and the local state of remote stores."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from vinedresser.errors import StoreError

__all__ = ["private_folder", "state_folder", "store_state_folder"]


def state_folder() -> Path:
    """Return the folder of this user's state, ``$XDG_STATE_HOME/vinedresser``."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state, "vinedresser")


def store_state_folder(url: str) -> Path:
    """Return the folder for this machine's state of a store; it depends only on the location.

    Args:
        url: URL of the store, or its absolute path.
    """
    plain = url.rstrip("/")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain.partition("://")[2] or plain.strip("/"))[:60]
    # The cleaned names of different URLs may be equal.
    mark = hashlib.sha256(plain.encode()).hexdigest()[:8]
    return state_folder() / "stores" / f"{name}-{mark}"


def private_folder(folder: Path) -> Path:
    """Create a folder that only this user can open, unless it exists, and return it.

    Raises:
        StoreError: it cannot be created, or belongs to another user.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Of an older version, or of a umask that leaves nothing to its owner.
        folder.chmod(0o700)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}; must be a folder of this user") from error
    return folder
