"""Start the ranks of a run on this host.

python -m vinedresser.infra.supervise.hosts RUN
"""

from __future__ import annotations

import sys
from pathlib import Path

from vinedresser.errors import VinedresserError
from vinedresser.infra.supervise.hosts.host import Host
from vinedresser.plain_text import visible

if __name__ == "__main__":
    try:
        Host(Path(sys.argv[1])).run()
    except (VinedresserError, OSError) as error:
        sys.stderr.write(f"{visible(str(error))}\n")
        sys.exit(1)
