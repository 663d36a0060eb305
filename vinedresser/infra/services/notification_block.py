"""Send a message by a block of Prefect, as its own process, in which Prefect is loaded.

    notification_block TYPE/NAME [--check]      stdin: {"subject": "…", "body": "…"}

With ``--check`` the block is loaded only. Standard output is one line that says what is wrong, and
has no secret of the block. The exit code is 0, 2 if another attempt would have the same result, or
1, as if Prefect's server or the receiver does not answer.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from types import TracebackType

from vinedresser.infra.services.prefect_settings import has_server
from vinedresser.plain_text import visible

_REFUSED = 2
_CLIENT_ERRORS = range(400, 500)


def main(arguments: list[str] | None = None) -> int:
    """Load a block, and send a message by it; return the exit code.

    Args:
        arguments: command line arguments; None: those of the process.
    """
    parser = argparse.ArgumentParser(prog="vinedresser.infra.services.notification_block")
    parser.add_argument("block", help="TYPE/NAME")
    parser.add_argument("--check", action="store_true", help="only load it")
    options = parser.parse_args(arguments)
    # Also what the block of a user raises: its message may have the receiver's address.
    sys.excepthook = _tell_kind
    if not has_server():
        _tell(f"{options.block}: no Prefect server with blocks: set PREFECT_API_URL to yours")
        return _REFUSED
    os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] = "false"
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "2")
    from httpx import HTTPStatusError
    from prefect.blocks import notifications  # noqa: F401 - which registers their types
    from prefect.blocks.abstract import NotificationBlock
    from prefect.blocks.core import Block

    try:
        block = Block.load(options.block)
    except (ValueError, KeyError, RuntimeError) as error:
        known = isinstance(error, ValueError) and "Unable to find block document" in str(error)
        what = "no such block on your Prefect server" if known else "cannot be loaded"
        _tell(f"{options.block}: {what}; `prefect block ls` lists those that there are")
        return _REFUSED
    except HTTPStatusError as error:
        _tell(f"{options.block}: Prefect's server replied {error.response.status_code}")
        return _REFUSED if error.response.status_code in _CLIENT_ERRORS else 1
    if not isinstance(block, NotificationBlock):
        _tell(f"{options.block}: is no notification block, which has notify")
        return _REFUSED
    if not options.check:
        message = json.load(sys.stdin)
        with block.raise_on_failure():
            sending = block.notify(message["body"], subject=message["subject"])
            if inspect.iscoroutine(sending):
                import asyncio

                asyncio.run(sending)
    return 0


def _tell(line: str) -> None:
    sys.stdout.write(visible(f"{line}\n", keep="\n"))


def _tell_kind(
    kind: type[BaseException], _error: BaseException, _traceback: TracebackType | None
) -> None:
    _tell(f"the message was not sent: {kind.__name__}")


if __name__ == "__main__":
    sys.exit(main())
