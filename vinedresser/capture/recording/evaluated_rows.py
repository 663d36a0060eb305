"""The choice of what is recorded of an evaluation with training rows and others."""

from __future__ import annotations

from vinedresser.capture.recording.recording import Recording


class EvaluatedRows:
    """Records only the rows that are not trained on, if an evaluation has such rows, too.

    Many loops evaluate the training rows before or after others, without a train step in between.

    Attributes:
        aside: the recording of the open evaluation while it goes over the training rows after
            others; None otherwise.
    """

    def __init__(self) -> None:
        self.aside: Recording | None = None
        self._of_training = False

    def next(
        self, recording: Recording | None, *, of_training: bool, begun: bool
    ) -> Recording | None:
        """Return what records the next forward of an evaluation; None: nothing does.

        Args:
            recording: what has recorded it so far.
            of_training: whether the rows of the forward are those of the training.
            begun: whether the evaluation had forwards before.
        """
        before, self._of_training = self._of_training, of_training
        if not begun or of_training == before:
            return recording
        if of_training:
            self.aside = recording
            return None
        aside, self.aside = self.aside, None
        if aside is not None or recording is None or recording.explicit:
            return aside or recording
        return Recording(recording.mode, recording.step, recording.due)

    def end(self) -> None:
        """Note the end of the evaluation."""
        self.aside = None
