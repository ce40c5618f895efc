"""What most people write: a FastAPI handler that calls the model, one request at a time, without batching.

    python benchmarks/plain_fastapi.py ARTIFACT PORT

Needs fastapi, which is no dependency of Tersely. The peer of benchmarks/serving.py.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from tersely import runtime


class Data(BaseModel):
    text: str
    text_pair: str | None = None


class Request(BaseModel):
    data: Data


app = FastAPI()
predictor = runtime.load(sys.argv[1], threads=1)


@app.post("/models/served")
def answer(request: Request) -> dict[str, object]:
    data = request.data
    (found,) = predictor.predict([data.text if data.text_pair is None else (data.text, data.text_pair)])
    return {"result": {"label": [found.value], "confidence": [found.score]}}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
