"""Capture from the user's tf.functions that train watched models."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import tensorflow as tf

from vinedresser.capture.keras_.backends.backend import first_length
from vinedresser.capture.keras_.graphs.traced import TracedFunction, converted
from vinedresser.capture.keras_.graphs.variants import Variants
from vinedresser.capture.keras_.observation.due_filter import UPDATE_TENSORS, DueFilter
from vinedresser.capture.keras_.observation.interception import current_observer, observing
from vinedresser.capture.keras_.observation.observers import PatchPoint
from vinedresser.capture.keras_.observation.optimizer_update import updates_made
from vinedresser.capture.keras_.observation.watched_model import WatchedModel
from vinedresser.capture.recording.recording import Recording
from vinedresser.frameworks.nesting import leaves


class UserFunctions:
    """Intercepts all calls of tf.functions while a model is watched.

    A function called during the trace of a captured step becomes part of that trace; TensorFlow
    inlines it into the graph anyway.
    """

    def __init__(self) -> None:
        self._watched: list[WatchedModel] = []
        self._known: weakref.WeakKeyDictionary[Any, _UserFunction] = weakref.WeakKeyDictionary()
        self._local = threading.local()
        # The model that was first watched in a running function, the first optimizer that updates
        # it there, and the steps the optimizer had made before.
        self._missed: tuple[WatchedModel, Any, int] | None = None

    @property
    def patch_point(self) -> PatchPoint:
        """The method through which every tf.function is called."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(function: Any, *args: Any, **kwargs: Any) -> Any:
                return self._call(original, function, args, kwargs)

            return call

        return type(tf.function(lambda: None)), "__call__", make

    def watch(self, watched: WatchedModel) -> None:
        """Start looking for functions that train a model."""
        self._watched.append(watched)

    def unwatch(self, watched: WatchedModel) -> None:
        """Stop looking for functions that train a model."""
        if self._missed is not None and self._missed[0] is watched:
            self._missed = None
            watched.session.shield.report(
                "the model was found in the only call of the tf.function that trains it: nothing "
                "is captured, and its steps are not counted; watch it with a Hook before"
            )
        self._watched.remove(watched)
        self._known.clear()

    def on_traced_call(self) -> None:
        """Handle a call of a watched model in a function that is being traced."""
        if self._outermost is not None:
            self._outermost.calls_model = True

    def on_traced_update(self, watched: WatchedModel, optimizer: Any) -> None:
        """Handle an update of a watched model in a function that is being traced."""
        if self._outermost is not None:
            self._outermost.register_update(watched, optimizer)
            return
        if _called_as_function():
            # The model was first watched during this call; the next one is intercepted.
            if self._missed is None:
                with tf.init_scope():
                    self._missed = (watched, optimizer, updates_made(optimizer))
            return
        watched.session.shield.report(
            f"{type(optimizer).__name__}.apply is part of a compiled function that was not called "
            "as a tf.function, for example one from get_concrete_function: its tensors are not "
            "captured and its steps are not counted"
        )

    @property
    def _outermost(self) -> _UserFunction | None:
        """The running function that was called from Python; None outside of any function."""
        found: _UserFunction | None = getattr(self._local, "outermost", None)
        return found

    def _call(self, original: Any, function: Any, args: Any, kwargs: Any) -> Any:
        if current_observer() is not None:
            return self._call_observed(original, function, args, kwargs)
        busy = self._outermost is not None or any(one.busy for one in self._watched)
        if busy or not self._watched or tf.inside_function():
            return original(function, *args, **kwargs)
        self._count_missed()
        known = self._known.get(function)
        if known is None:
            session = self._watched[0].session
            watched = [one for one in self._watched if one.session is session]
            known = self._known[function] = _UserFunction(watched)
        if not known.relevant:
            return original(function, *args, **kwargs)
        self._local.outermost = known
        call = functools.partial(
            known.call, functools.partial(original, function), function, args, kwargs
        )
        for one in known.watched:
            if one.guard is not None:
                call = functools.partial(one.guard.around, call, _cannot_run_again)
        try:
            return call()
        finally:
            self._local.outermost = None

    def _count_missed(self) -> None:
        """Count the steps of the call in which a model was first watched."""
        missed, self._missed = self._missed, None
        if missed is None:
            return
        watched, optimizer, before = missed
        if watched in self._watched and watched.leads():
            # The guard lets TrainingStopped through.
            end_step = watched.session.shield.guard("the end of a step", watched.session.step_ended)
            for _ in range(updates_made(optimizer) - before):
                end_step()

    def _call_observed(self, original: Any, function: Any, args: Any, kwargs: Any) -> Any:
        """Call a function inside an observed step."""
        if tf.inside_function() and not function._jit_compile:
            return converted(function)(*args, **kwargs)
        for watched in self._watched:
            watched.session.shield.report(
                f"nothing is captured inside the compiled function {function.name}"
            )
        with observing(None):
            return original(function, *args, **kwargs)


class _UserFunction:
    """A tf.function that may train a watched model.

    It is called unchanged if nothing is due. Otherwise a second function is called, traced from the
    same Python function, that also returns the due tensors. A function that references a watched
    model is traced before its first step to find out whether it calls or updates the model.

    Args:
        watched: the watched models of one run.

    Attributes:
        calls_model: whether it calls a watched model.
    """

    def __init__(self, watched: list[WatchedModel]) -> None:
        self.calls_model = False
        self._first_call = True
        self.watched = watched
        self._session = watched[0].session
        self._recorder = self._session.recorder
        # The model, its leading optimizer, and the steps the optimizer had made when found.
        self._lead: tuple[WatchedModel, Any, int] | None = None
        self._variants: Variants[TracedFunction] | None = None
        self._failed = False
        guard = self._session.shield.guard
        self._begin = guard("the start of a step", self._begin_step)
        self._analyze = guard("the analysis of a tf.function", self._trace_only)
        self._attempt = guard("a step in a tf.function", self._run_traced)
        self._write = guard("the end of a step", self._write_tensors)
        # The guard lets TrainingStopped through.
        self._end_step = guard("the end of a step", self._session.step_ended)

    @property
    def relevant(self) -> bool:
        """Whether its calls may have to be captured or counted."""
        evaluated = self._recorder.explicit_mode in ("eval", "predict")
        return self._first_call or self._lead is not None or (self.calls_model and evaluated)

    def register_update(self, watched: WatchedModel, optimizer: Any) -> None:
        """Register that it updates a model; called during its trace."""
        if watched.counter.register(optimizer) and (self._lead is None or watched.leads()):
            with tf.init_scope():
                self._lead = (watched, optimizer, updates_made(optimizer))

    def call(self, original: Callable[..., Any], function: Any, args: Any, kwargs: Any) -> Any:
        """Call the tf.function or its capturing variant and return its result."""
        quiet = self._recorder.quiet
        if self._first_call and not quiet:
            self._analyze(function, args, kwargs)
        recording = None if quiet else self._begin(args, kwargs)
        attempt = None
        if recording is not None and not self._failed:
            before = self._steps_made()
            attempt = self._attempt(function, recording, args, kwargs)
            self._failed = attempt is None
        else:
            before = self._steps_made()
        if isinstance(attempt, BaseException):
            raise attempt
        result, tensors = (original(*args, **kwargs), {}) if attempt is None else attempt
        if self._first_call:
            self._report_limits()
            before = self._lead[2] if before is None and self._lead is not None else before
        steps = (self._steps_made() or 0) - (before or 0)
        if recording is not None:
            self._write(recording, tensors, steps)
        self._end_steps(steps)
        return result

    def _trace_only(self, function: Any, args: Any, kwargs: Any) -> None:
        """Trace a new function, without running it, to find its model calls and updates."""
        # Variables without a model are updated by an optimizer that is known.
        known = [one for each in self.watched for one in (each.model, each.counter.optimizer)]
        recording = self._recorder.recording(self._recorder.explicit_mode or "train")
        if recording is not None and _references(function.python_function, known):
            traced = self._choose(function, recording)
            traced.prepare_for(args, kwargs)
            for watched in self.watched:
                watched.introduce_layers()
            self.calls_model |= any(name.startswith("outputs/") for name in traced.available)
            for optimizer, variables in traced.updates:
                for watched in self.watched:
                    if watched.is_updated_by(optimizer, variables):
                        self.register_update(watched, optimizer)

    def _begin_step(self, args: Any, kwargs: Any) -> Recording | None:
        mode = self._recorder.explicit_mode or (None if self._lead is None else "train")
        if mode is None:
            return None
        if mode == "train":
            self._recorder.resume_training()
        recording = self._recorder.recording(mode)
        if recording is not None:
            recording.forwards += 1
            given = leaves([args, kwargs], "", lambda one: isinstance(one, tf.Tensor))
            recording.batch = first_length(one for _, one in given) or 1
        return recording

    def _choose(self, function: Any, recording: Recording) -> TracedFunction:
        if self._variants is None:

            def make(is_due: DueFilter) -> TracedFunction:
                return TracedFunction(function, is_due, [one.collector for one in self.watched])

            self._variants = Variants("train_step", make)
        # This holds whether or not the current forward has been counted.
        return self._variants.choose(recording.due, later=not recording.first_batch)

    def _run_traced(self, function: Any, recording: Recording, args: Any, kwargs: Any) -> Any:
        """Run the second function; return its result and tensors, or TensorFlow's runtime error.

        Raises:
            Exception: The function could not be traced; nothing has run.
        """
        traced = self._choose(function, recording)
        try:
            attempt: Any = traced.run(args, kwargs)
        except tf.errors.OpError as error:
            attempt = error
        if warning := traced.unreachable_warning():
            self._session.shield.report(warning)
        return attempt

    def _write_tensors(self, recording: Recording, tensors: dict[str, Any], steps: int) -> None:
        write = self.watched[0].writer.write
        for name, value in tensors.items():
            if steps or not name.startswith(UPDATE_TENSORS):
                write(recording, name, value, recording.weight())

    def _steps_made(self) -> int | None:
        return None if self._lead is None else updates_made(self._lead[1])

    def _report_limits(self) -> None:
        """Report what cannot be captured, after the first call."""
        self._first_call = False
        report = self._session.shield.report
        if self._lead is None and self.calls_model and self._recorder.explicit_mode is None:
            report(
                "a tf.function calls the watched model without updating it: its tensors are "
                "captured only inside `with hook.mode('eval'):`"
            )

    def _end_steps(self, steps: int) -> None:
        if steps > 1:
            self._session.shield.report(
                f"a tf.function makes {steps} optimizer steps per call: all are counted, but only "
                "few of their tensors can be captured"
            )
        if steps > 0 and self._lead is not None and self._lead[0].leads():
            for _ in range(steps):
                self._end_step()


def _called_as_function() -> bool:
    """Return whether the running code is traced for a call of a tf.function."""
    calls = type(tf.function(lambda: None))._call.__code__
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not calls:
        frame = frame.f_back
    return frame is not None


def _cannot_run_again(_: Any) -> Any:
    raise AssertionError("only steps of Keras are run again")


def _references(function: Any, objects: Iterable[Any]) -> bool:
    """Return whether a function references one of some objects.

    Globals that it names, closure variables and, for a method, the attributes of its object count.

    Args:
        function: a Python function or bound method.
        objects: the objects; None is ignored.
    """
    wanted = {id(thing) for thing in objects if thing is not None}
    return any(id(one) in wanted for one in _referenced(function))


def _referenced(function: Any) -> Iterator[Any]:
    owner = getattr(function, "__self__", None)
    if owner is not None:
        yield owner
        yield from vars(owner).values() if hasattr(owner, "__dict__") else ()
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    names = code.co_names if code is not None else ()
    known = getattr(plain, "__globals__", {})
    yield from (known[name] for name in names if name in known)
    for cell in getattr(plain, "__closure__", None) or ():
        try:
            inside = cell.cell_contents
        except ValueError:
            # A variable without a value yet.
            continue
        # TensorFlow wraps methods in functions that hold the object by a weak reference.
        if isinstance(inside, weakref.ref):
            inside = inside()
            yield from vars(inside).values() if hasattr(inside, "__dict__") else ()
        yield inside
