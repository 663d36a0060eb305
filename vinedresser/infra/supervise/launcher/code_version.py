"""The version of the code that a training runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# The file system may be slow and the repository large; the version is not worth a longer wait.
_PATIENCE = 10.0


def code_version(directory: str | os.PathLike[str]) -> str:
    """Return the git commit of a directory, with the suffix "-dirty" if tracked files changed.

    Args:
        directory: a directory in a work tree.

    Returns:
        40 or 64 hexadecimal digits and the suffix; "" without git, a repository or a commit.
    """
    if not Path(directory).is_dir():
        return ""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=64", "--exclude=*"],
            cwd=directory,
            # Otherwise git refreshes the index under a lock that the user's git may need.
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
