"""The relay's command line: ``python -m vinedresser.infra.supervise.relay SPOOL LOCK``.

LOCK is the descriptor of the spool's lock, held for the lifetime of the process. The relay writes
one JSON object per line to stdout: ``{"ready": true}`` once the run is claimed, or ``{"error":
<class>, "message": …}``; then ``{"say": …}`` with messages for the user, and ``{"done": true}``
when everything is uploaded. All lines go to ``.relay/log.txt``, too.
"""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

from vinedresser.errors import RunRemoved, VinedresserError
from vinedresser.foreign_signals import handle_foreign
from vinedresser.infra.supervise.relay.relay import Relay
from vinedresser.infra.supervise.relay.speaking import Speaker
from vinedresser.objects import open_storage
from vinedresser.store.spool import read_target


def main(folder: Path) -> int:
    """Upload a spool; return 0 when all of it is in the store."""
    # Ctrl-C and a closed terminal end the training, but not its upload.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    handle_foreign()
    speaker = Speaker(folder)
    try:
        target = read_target(folder)
        if target is None:
            speaker.refuse("StoreError", f"{folder}: not a spool")
            return 2
        relay = Relay(folder, target, open_storage(target.url), speaker.say)
        relay.claim()
    except VinedresserError as error:
        speaker.refuse(type(error).__name__, str(error))
        return 2
    speaker.tell(ready=True)
    try:
        relay.run()
    except RunRemoved as error:
        speaker.say(str(error))
        return 3
    except VinedresserError as error:
        speaker.say(f"{error}; data not yet uploaded stays in {folder}")
        return 3
    if not speaker.tell(done=True):
        # The parent, which would remove it, is gone.
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
