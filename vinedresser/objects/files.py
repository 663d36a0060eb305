"""Opening files below a root: regular files only, and without following symbolic links.

A training may leave anything in its run directory, such as a link to a file elsewhere, or a FIFO
that blocks its reader. The root itself may be a link, since the user chose it.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vinedresser.errors import NotAFile
from vinedresser.objects.base import TEMPORARY

__all__ = [
    "APPEND",
    "check_file",
    "check_obstacles",
    "folder_below",
    "folder_mode",
    "is_missing",
    "make_folder",
    "make_folders",
    "open_file",
    "open_folder",
    "opened_path",
    "replacing",
    "temporary_name",
]

# Threads, processes, containers and machines may write the same file at once, each under its own
# temporary name. Process ids repeat between machines; a fork repeats the token.
_TOKEN = os.urandom(4).hex()
_NUMBERS = itertools.count()

# Flags that open or create a file to append to it.
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A FIFO is opened without waiting for its other end, and then refused.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Errors of the system if something else than a file or a folder is in the way.
_OBSTACLES = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR})
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFREG: "a file",
}


def open_file(root: str | os.PathLike[str], key: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file below a root.

    Args:
        root: the root, which may be a symbolic link.
        key: slash-separated name of the file below the root.
        flags: flags of `os.open`, such as ``os.O_RDWR | os.O_CREAT``.

    Returns:
        Its descriptor, not inheritable.

    Raises:
        NotAFile: the key, or a folder in it, is something else, such as a symbolic link or a FIFO.
        FileNotFoundError: it does not exist.
        OSError: it cannot be opened for another reason.
    """
    folder, _, name = key.rpartition("/")
    try:
        parent = open_folder(root, folder)
        try:
            descriptor = os.open(name, flags | _FILE, 0o644, dir_fd=parent)
        finally:
            os.close(parent)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), key)
    except OSError as error:
        check_obstacles(error, root, key)
        raise


def open_folder(root: str | os.PathLike[str], folder: str) -> int:
    """Open a folder below a root, without following symbolic links below the root.

    Args:
        root: the root, which may be a symbolic link.
        folder: slash-separated name of the folder below the root; "": the root itself.

    Returns:
        Its descriptor, not inheritable.

    Raises:
        FileNotFoundError: it does not exist.
        NotADirectoryError: it, or a folder in its name, is something else.
        OSError: it cannot be opened for another reason.
    """
    descriptor = os.open(root, _FOLDER)
    for name in folder.split("/") if folder else ():
        try:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


@contextmanager
def opened_path(path: Path) -> Iterator[str]:
    """Open a regular file, and yield a path to it for a library that opens files itself.

    The path leads to the opened file, whatever has taken its place since.

    Args:
        path: path of the file; its folder may be a symbolic link.

    Raises:
        NotAFile: it is something else, such as a symbolic link or a FIFO.
        FileNotFoundError: it does not exist.
        OSError: it cannot be opened for another reason.
    """
    descriptor = open_file(path.parent, path.name)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def check_file(path: Path) -> None:
    """Check that nothing but a regular file is at a path, without opening it.

    SQLite opens its files itself, and loses its locks when anybody in the process closes one.

    Raises:
        NotAFile: there is something else, such as a symbolic link or a FIFO.
        OSError: it cannot be looked up.
    """
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if kind != stat.S_IFREG:
        raise NotAFile(_obstacle(str(path.parent.absolute()), path.name))


def folder_below(root: Path, folder: str) -> Path:
    """Return the path of a folder below a root, which may not exist yet.

    Args:
        root: the root, which may be a symbolic link.
        folder: slash-separated name of the folder below the root.

    Raises:
        NotAFile: it, or a folder in its name, is something else, such as a symbolic link.
        OSError: it cannot be opened.
    """
    try:
        os.close(open_folder(root, folder))
    except FileNotFoundError:
        pass
    except OSError as error:
        check_obstacles(error, root, f"{folder}/")
        raise
    return root / folder


def temporary_name(name: str) -> str:
    """Return a new name, which nobody can foresee, for a file until it is complete."""
    return f"{TEMPORARY}{_TOKEN}-{os.getpid()}-{next(_NUMBERS)}-{name}"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file that replaces a file at the end, unless there is an error.

    Args:
        path: path of the file; its directory is created if missing.

    Raises:
        OSError: the directory or the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(temporary_name(path.name))
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def folder_mode() -> int:
    """Return the permissions of a new folder of a store: private, unless the umask shares writing.

    The umasks 022 and 027 are defaults that nobody chose for the store, and give 0700. One that
    lets a group (002, 007) or everybody (000) write says that they work together, and is followed.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    # Reading it with os.umask would change it for other threads meanwhile.
    umask = int(status.partition("\nUmask:")[2].partition("\n")[0], 8)
    group = 0 if umask & stat.S_IWGRP else stat.S_IRWXG
    others = 0 if umask & stat.S_IWOTH else stat.S_IRWXO
    return (stat.S_IRWXU | group | others) & ~umask


def is_missing(path: str | os.PathLike[str]) -> bool:
    """Return whether there is nothing at a path; False if that cannot be looked up."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        # Nothing is given up for a moment of a failing disk.
        return False
    return False


def make_folders(path: str | os.PathLike[str]) -> None:
    """Make a folder and those around it with the permissions of `folder_mode`, unless they exist.

    Raises:
        OSError: a folder cannot be made.
    """
    missing = [Path(path)]
    while not missing[-1].exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        folder.mkdir(folder_mode(), exist_ok=True)


def make_folder(root: str | os.PathLike[str], folder: str) -> None:
    """Make a folder below a root, the root, and all folders between them, unless they exist.

    Raises:
        OSError: the folder cannot be made, or is something else.
    """
    make_folders(root)
    outer = ""
    for name in folder.split("/") if folder else ():
        descriptor = open_folder(root, outer)
        try:
            with suppress(FileExistsError):
                os.mkdir(name, folder_mode(), dir_fd=descriptor)
        finally:
            os.close(descriptor)
        outer = f"{outer}/{name}" if outer else name


def check_obstacles(error: OSError, root: str | os.PathLike[str], key: str) -> None:
    """Check whether an error of the system is due to something else where a file should be.

    Args:
        key: name of the file below the root.

    Raises:
        NotAFile: it is; the message has the path and the kind of the first obstacle.
    """
    if error.errno in _OBSTACLES:
        raise NotAFile(_obstacle(os.path.abspath(root), key)) from error


def _obstacle(root: str, key: str) -> str:
    """Describe the first thing in a path that is not what the path says."""
    for folder in (*reversed(Path(root).parents), Path(root)):
        with suppress(OSError):
            kind = stat.S_IFMT(folder.stat().st_mode)
            if kind != stat.S_IFDIR:
                return f"{folder}: {_KINDS.get(kind, 'something else')}, not a folder"
    path = root
    for place, name in enumerate(names := key.split("/"), start=1):
        path = f"{path}/{name}"
        with suppress(OSError):
            kind = stat.S_IFMT(os.lstat(path).st_mode)
            wanted = stat.S_IFREG if place == len(names) else stat.S_IFDIR
            if kind != wanted:
                return f"{path}: {_KINDS.get(kind, 'something else')}, not {_KINDS[wanted]}"
    return f"{root}/{key}: not a file"
