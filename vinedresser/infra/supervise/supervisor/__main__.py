"""Run a supervisor.

python -m vinedresser.infra.supervise.supervisor RUN [LOCK LAUNCH [CHANNEL]]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from vinedresser.errors import LaunchError, NotARun, VinedresserError
from vinedresser.infra.supervise.supervisor.say import say
from vinedresser.infra.supervise.supervisor.supervision import Supervisor
from vinedresser.store.records import run_lock


def main(arguments: Sequence[str]) -> int:
    """Supervise the run in a directory; return 0 when its exit record is written.

    Args:
        arguments: the run directory and, if the caller has already locked it, the descriptors of
            the lock, of a file in memory with the arguments and environment of the program, and of
            the channel on which the caller passes signals on.
    """
    directory = Path(arguments[0]).absolute()
    try:
        if not directory.is_dir():
            raise NotARun(f"{directory}: no such directory")
        if len(arguments) > 1:
            # The trainer must not inherit it: it would hold the lock after the supervisor's death.
            os.set_inheritable(int(arguments[1]), False)
        elif run_lock.acquire(directory) is None:
            raise LaunchError(f"{directory}: already has a supervisor")
        Supervisor(directory, *map(int, arguments[2:])).run()
    except (VinedresserError, OSError) as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
