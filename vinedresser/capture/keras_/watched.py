"""One watched model, and what all that watch it need to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vinedresser.capture.keras_.backends.backend import Backend, backend_in_use
from vinedresser.capture.keras_.names import Names
from vinedresser.capture.keras_.steps.asking import Asks
from vinedresser.capture.keras_.steps.collector import Collector, Take
from vinedresser.capture.keras_.steps.counting import StepCount
from vinedresser.capture.keras_.steps.keeping import Keeping
from vinedresser.capture.recording.session import Session

__all__ = ["Watched"]


class Watched:
    """One watched model.

    Args:
        session: of the run.
        model: the model.
        optimizer: the one whose steps are counted; None: the first that updates the model.
        name: comes before the names of all that belongs to the model; None: nothing does.
        adapter: leads the session where the run's steps are those of this model.
        grown: called where the model has got layers since it was watched.

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
        self,
        session: Session,
        model: Any,
        *,
        optimizer: Any,
        name: str | None,
        adapter: object,
        grown: Callable[[], None],
    ) -> None:
        self.session = session
        self.model = model
        self.names = Names(model, name)
        self.backend: Backend = backend_in_use()
        self.keeping = Keeping(session, self.names, self.backend)
        self.count = StepCount(model, optimizer)
        self.busy = False
        self._adapter = adapter
        self._grown = session.shield.guard("taking in layers that were built late", grown)
        # The identities of those that are known, and whether some were met that are not yet.
        self._layers = {id(layer) for _, layer in self.names.layers()}
        self._unknown = False
        # By identity of an optimizer, whether it updates the model, and the optimizer, to hold it.
        self._optimizers: dict[int, tuple[bool, Any]] = {}
        if optimizer is not None:
            session.leader = adapter

    def met(self, layers: Iterable[int]) -> None:
        """Note which layers the model has by now, and take in new ones.

        While TensorFlow traces, nothing can be read that the run's record is to say: then they are
        taken in by `take_in`, when it has ended.

        Args:
            layers: their identities.
        """
        if not self._layers.issuperset(layers):
            self._layers.update(layers)
            self._unknown = True
            if not self.backend.tracing():
                self.take_in()

    def take_in(self) -> bool:
        """Take in layers that were met and are not known yet; say whether there were any."""
        unknown, self._unknown = self._unknown, False
        if unknown:
            self._grown()
        return unknown

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
            self.session.newly_set_up |= ours
        return known[0]

    def optimizers(self) -> list[Any]:
        """Return the optimizers that are known to update the model, or that are to."""
        seen = [optimizer for ours, optimizer in self._optimizers.values() if ours]
        expected = [self.count.optimizer, getattr(self.model, "optimizer", None)]
        inner = {id(getattr(one, "inner_optimizer", None)) for one in (*expected, *seen)}
        found = {id(one): one for one in (*expected, *seen) if one is not None}
        return [one for key, one in found.items() if key not in inner]

    def collector(self, asks: Asks, take: Take) -> Collector:
        """Return what looks on at a step or forward.

        Args:
            asks: says of a full name whether the tensor is asked for.
            take: takes it.
        """
        shield = self.session.shield
        return Collector(self.names, self.backend, asks, take, met=self.met, shield=shield)
