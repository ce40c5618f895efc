"""How each task looks to a server's clients: parameters, results and tensors with their schemas, samples."""

from .form import OutputTensor, Parameters, RequestParameter, Sample, Schema, Wire, closed

__all__ = ["OutputTensor", "Parameters", "RequestParameter", "Sample", "Schema", "Wire", "closed"]
