"""The version of the code that a training runs, and what was changed in it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from vinedresser.masking import masked_code, masked_text

__all__ = ["SourceCode", "source_code"]

# The file system may be slow and the repository large; the version is not worth a longer wait.
_PATIENCE = 10.0
# Bytes of the changes that are kept.
_MOST = 256 << 10
# Nothing that a repository's configuration names is run.
_GIT = ("git", "-c", "core.fsmonitor=false")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
_DIFF = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv")
_CUT = "\n# cut here: the changes are longer than 256 KiB\n"


class SourceCode(NamedTuple):
    """Code in a work tree of git.

    Attributes:
        revision: the commit, 40 or 64 hexadecimal digits, with the suffix "-dirty" if tracked files
            changed; "" without git, a repository or a commit.
        branch: name of the branch; "" if there is none.
        repository: URL of the remote repository ``origin``, without a password; "" if there is
            none.
        changes: what changed in tracked files since the commit, as a diff of at most 256 KiB in
            which what looks like a secret is masked.
    """

    revision: str = ""
    branch: str = ""
    repository: str = ""
    changes: str = ""


def source_code(directory: str | os.PathLike[str]) -> SourceCode:
    """Return what git knows of a directory; git is not waited for longer than 10 seconds."""
    state = _git(directory, *_STATUS).splitlines()
    head = dict(line[2:].split(" ", 1) for line in state if line.startswith("# branch."))
    commit = head.get("branch.oid", "(initial)")
    if not commit.isalnum():
        return SourceCode()
    branch = head.get("branch.head", "")
    dirty = any(not line.startswith("#") for line in state)
    return SourceCode(
        f"{commit}-dirty" if dirty else commit,
        "" if branch == "(detached)" else branch,
        masked_text(_git(directory, "config", "--get", "remote.origin.url").strip()),
        masked_code(_git(directory, *_DIFF)) if dirty else "",
    )


def _git(directory: str | os.PathLike[str], *arguments: str) -> str:
    """Return the first 256 KiB of what a command of git prints; "" if it fails."""
    if not Path(directory).is_dir():
        return ""
    # Not a pipe: a diff may be large.
    with tempfile.TemporaryFile() as printed:
        try:
            answer = subprocess.run(
                [*_GIT, *arguments],
                cwd=directory,
                # Otherwise git refreshes the index under a lock that the user's git may need.
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.DEVNULL,
                timeout=_PATIENCE,
                check=False,
            )
        except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
            return ""
        printed.seek(0)
        text = printed.read(_MOST).decode(errors="replace")
        cut = _CUT if printed.read(1) else ""
    return text + cut if answer.returncode == 0 else ""
