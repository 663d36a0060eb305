"""Messages of a relay, to its parent while that lives and to a log in the spool."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from threading import Lock
from typing import Any

from vinedresser.objects.files import APPEND, open_file
from vinedresser.plain_logs import plain_logger
from vinedresser.store.spool import PRIVATE

_LOG = plain_logger(__name__)
_LOG_NAME = "log.txt"


class Speaker:
    """Writes messages to stdout and to the spool's log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / PRIVATE
        self._lock = Lock()

    def say(self, sentence: str) -> bool:
        """Send a message for the user; return whether the parent reads it."""
        return self.tell(say=sentence)

    def refuse(self, kind: str, message: str) -> bool:
        """Report why the upload is impossible: the name of an error and its message."""
        return self.tell(error=kind, message=message)

    def tell(self, **message: Any) -> bool:
        """Send a message; return whether the parent reads it."""
        line = json.dumps(message)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with self._lock:
            try:
                if self._folder.is_dir():
                    with open(open_file(self._folder, _LOG_NAME, APPEND), "a") as log:
                        log.write(f"{stamp} {line}\n")
            except OSError as error:
                # The upload does not end with its log: on a full disk, it alone makes room.
                _LOG.warning("%s: %s: %s", self._folder / _LOG_NAME, error.strerror or error, line)
            try:
                os.write(1, line.encode() + b"\n")
            except OSError:
                return False
        return True
