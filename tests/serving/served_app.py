"""A service of FastAPI whose requests are recorded; uvicorn imports it in each of its workers."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI

from vinedresser.serving import Limits, RequestMiddleware, RequestRecorder

app = FastAPI()
app.add_middleware(
    RequestMiddleware,
    recorder=RequestRecorder(
        os.environ["SERVICE_STORE"], "service", limits=Limits(flush_seconds=0.2)
    ),
    paths=["/predict"],
)


@app.post("/predict")
def predict(record: dict[str, Any]) -> dict[str, Any]:
    """Return a prediction, and the process that made it."""
    return {"prediction": record["age"] > 40, "process": os.getpid()}
