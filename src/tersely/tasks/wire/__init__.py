"""How each task looks to a server's clients: parameters, results and tensors with their schemas, samples."""

from .form import Output, Parameter, Parameters, Sample, Wire
from .schemas import Schema, closed

__all__ = ["Output", "Parameter", "Parameters", "Sample", "Schema", "Wire", "closed"]
