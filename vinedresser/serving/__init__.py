"""Requests of a served model: recording them in a store, and reading them back."""

from __future__ import annotations

from vinedresser.columns.describing import describe
from vinedresser.serving.reading.request_store import RequestStore
from vinedresser.serving.reading.requests import Requests
from vinedresser.serving.recording.limits import Limits
from vinedresser.serving.recording.recorder import RequestRecorder, request_ids
from vinedresser.serving.wrappers.asgi import RequestMiddleware
from vinedresser.serving.wrappers.watching import describe_model, watch

__all__ = [
    "Limits",
    "RequestMiddleware",
    "RequestRecorder",
    "RequestStore",
    "Requests",
    "describe",
    "describe_model",
    "request_ids",
    "watch",
]
