"""Files that change as soon as they have been read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


@contextmanager
def invalid_once_read(file: Path) -> Iterator[None]:
    """Make a file invalid once it has been read; restore it at the end of the context.

    It is a pipe, which its first reader empties.
    """
    content, invalid = file.read_bytes(), file.with_suffix(".invalid")
    invalid.write_text("read twice", encoding="utf-8")
    file.unlink()
    os.mkfifo(file)

    def serve() -> None:
        with file.open("wb") as pipe:
            pipe.write(content)
            # The reader gets the end of the pipe after that.
            invalid.replace(file)

    server = Thread(target=serve, daemon=True)
    server.start()
    yield
    server.join()
    file.write_bytes(content)
