"""Which code a training ran."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["code_version"]

# The file system may be slow, and the repository large; nobody waits longer for a nicety.
_PATIENCE = 10.0


def code_version(directory: str | os.PathLike[str]) -> str:
    """Return the git commit of a directory, with "-dirty" behind it when tracked files changed.

    Args:
        directory: any directory of a work tree.

    Returns:
        40 or 64 hexadecimal digits and the mark; "" without git, a repository or a commit.
    """
    if not Path(directory).is_dir():
        return ""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=64", "--exclude=*"],
            cwd=directory,
            # Else it refreshes the index, under a lock that a person's git may want.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="ascii",
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
