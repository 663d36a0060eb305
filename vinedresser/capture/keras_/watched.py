"""One watched model, and what all that watch it need to know."""

from __future__ import annotations

from typing import Any

from vinedresser.capture.keras_.asking import Asks
from vinedresser.capture.keras_.backend import Backend, backend_in_use
from vinedresser.capture.keras_.collector import Collector, Take
from vinedresser.capture.keras_.counting import StepCount
from vinedresser.capture.keras_.keeping import Keeping
from vinedresser.capture.keras_.names import Names
from vinedresser.capture.session import Session

__all__ = ["Watched"]


class Watched:
    """One watched model.

    Args:
        session: of the run.
        model: the model.
        optimizer: the one whose steps are counted; None: the first that updates the model.
        name: comes before the names of all that belongs to the model; None: nothing does.
        adapter: leads the session where the run's steps are those of this model.

    Attributes:
        session: of the run.
        model: the model.
        names: of its layers and variables.
        backend: under Keras.
        keeping: keeps what is seen.
        count: of optimizer steps.
        busy: Keras's own loop is at work in the model, so all that happens in it is seen to.

    Raises:
        ConfigError: the backend cannot be watched.
        ImportError: the backend's package is not installed.
    """

    def __init__(
        self, session: Session, model: Any, *, optimizer: Any, name: str | None, adapter: object
    ) -> None:
        self.session = session
        self.model = model
        self.names = Names(model, name)
        self.backend: Backend = backend_in_use()
        self.keeping = Keeping(session, self.names, self.backend)
        self.count = StepCount(model, optimizer)
        self.busy = False
        self._adapter = adapter
        # By identity of an optimizer, whether it updates the model, and the optimizer, to hold it.
        self._optimizers: dict[int, tuple[bool, Any]] = {}
        if optimizer is not None:
            session.leader = adapter

    def leads(self) -> bool:
        """Say whether the run's steps are those of this model; they are if nobody led before."""
        if self.session.leader is None:
            self.session.leader = self._adapter
        return self.session.leader is self._adapter

    def updated_by(self, optimizer: Any, variables: Any) -> bool:
        """Say whether an optimizer updates the model.

        Args:
            optimizer: as it is called.
            variables: what it is called with; None: all that it was built with.
        """
        known = self._optimizers.get(id(optimizer))
        if known is None:
            mine = {id(one) for one in self.model.variables}
            mine |= {id(one._value) for one in self.model.variables}
            given = optimizer._trainable_variables if variables is None else variables
            ours = any(id(one) in mine or id(getattr(one, "_value", one)) in mine for one in given)
            known = self._optimizers[id(optimizer)] = (ours, optimizer)
        return known[0]

    def collector(self, asks: Asks, take: Take) -> Collector:
        """Return what looks on at a step or forward.

        Args:
            asks: says of a full name whether the tensor is asked for.
            take: takes it.
        """
        return Collector(self.names, self.backend, asks, take, shield=self.session.shield)
