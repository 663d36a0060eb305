"""The parts of the ranks' output that are shown where the run was started."""

from __future__ import annotations

from vinedresser.infra.supervise.supervisor.crash_reason import CrashReason

__all__ = ["ErrorsOfRank", "Everything", "WholeLines"]

# Bytes of a line that are held back until it ends.
_LONGEST = 64 * 1024


class Everything:
    """The bytes of a stream as they are: those of a training of one process."""

    def of(self, chunk: bytes, _: list[str]) -> bytes:
        """See `Shown.of`."""
        return chunk


class WholeLines:
    """The bytes of a stream in whole lines, so that no other rank's output tears them."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, chunk: bytes, _: list[str]) -> bytes:
        """See `Shown.of`."""
        content = self._rest + chunk
        # A progress bar ends its states with a carriage return.
        at = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
        if not chunk or len(content) - at > _LONGEST:
            at = len(content)
        self._rest = content[at:]
        return content[:at]


class ErrorsOfRank:
    """The errors among the lines of a standard error, and what its hook says of this rank alone.

    Each line has the rank. What a hook says otherwise, that of rank 0 says, too.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._errors = CrashReason()
        self._own = f"vinedresser: rank {rank} "

    def of(self, _: bytes, lines: list[str]) -> bytes:
        """See `Shown.of`."""
        told: list[str] = []
        for line in lines:
            told += [line] if line.startswith(self._own) else self._errors.feed([line])
        return "".join(f"[rank {self._rank}] {line}\n" for line in told).encode()
