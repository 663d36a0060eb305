"""A rank whose process another one has started, perhaps on another machine."""

from __future__ import annotations


class RankElsewhere:
    """A rank whose process another one has started, as that one reports it.

    Attributes:
        running: whether it may be running.
        code: its exit code, or the negative number of the signal that ended it.
        said: the last line of its error; "" if there is none.
        failed_at: when it failed, by the monotonic clock of this machine.
        late: whether it was still running when it was asked to end because another one had failed.
        lost: why its end is not known, one sentence; "" if it is.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.running = True
        self.code = 0
        self.said = ""
        self.failed_at = float("inf")
        self.late = False
        self.lost = ""

    @property
    def failed(self) -> bool:
        """Whether it has ended in another way than with exit code 0."""
        return not self.running and self.code != 0

    def end(self, code: int, *, at: float, said: str = "", lost: str = "") -> None:
        """Note its end; the first one counts.

        Args:
            code: see `code`.
            at: when it ended, by the monotonic clock of this machine.
            said: see `said`.
            lost: see `lost`.
        """
        if self.running:
            self.running, self.code, self.said, self.lost = False, code, said, lost
            self.failed_at = at if code else self.failed_at
