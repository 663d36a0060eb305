"""The relay's command line: ``python -m vinedresser.infra.relay SPOOL LOCK``.

LOCK is the descriptor of the spool's lock, which is held as long as the process lives. It says on
stdout, a JSON object a line: ``{"ready": true}`` when the run is claimed, or ``{"error": <class>,
"message": …}``; then ``{"say": …}`` for what a person should know, and ``{"done": true}`` when
everything is in the store. All of that goes to ``.relay/log.txt``, too.
"""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

from vinedresser.errors import VinedresserError
from vinedresser.infra.relay.relay import Relay
from vinedresser.infra.relay.speaking import Speaker
from vinedresser.store.storage import open_storage
from vinedresser.store.storage.spool import read_target

__all__ = ["main"]


def main(folder: Path) -> int:
    """Bring a spool to its store, and return 0 when all of it is there.

    Args:
        folder: the spool.
    """
    # What ends the training by the terminal is not to end the upload of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    target = read_target(folder)
    speaker = Speaker(folder)
    if target is None:
        speaker.refuse("StoreError", f"{folder}: is no spool")
        return 2
    try:
        relay = Relay(folder, target, open_storage(target.url), speaker.say)
        relay.claim()
    except VinedresserError as error:
        speaker.refuse(type(error).__name__, str(error))
        return 2
    speaker.tell(ready=True)
    try:
        relay.run()
    except VinedresserError as error:
        speaker.say(f"{error}; what is not uploaded stays in {folder}")
        return 3
    if not speaker.tell(done=True):
        # Nobody is left who would remove it.
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
