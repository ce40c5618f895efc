"""`tersely serve`: artifacts behind HTTP. Starlette and uvicorn; no torch, no transformers."""
