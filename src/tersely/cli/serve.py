"""Answer requests over HTTP with one or several artifacts, until stopped."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from ..engines import ENGINES
from ..errors import UserError, missing_package, wrong_option
from ..serve.models import named_folders
from ..serve.server_options import STREAMS, Limits, ServerOptions, share_cores
from . import arguments as flags
from . import console

PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")
KEY = "TERSELY_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    what = "artifacts, also hub:owner/name; NAME=DIR serves one under another name"
    flags.add_model(parser, what, several=True)
    parser.add_argument(
        "--host", default=ServerOptions.host, help="address to listen on (127.0.0.1: this machine alone)"
    )
    parser.add_argument(
        "--port", type=int, default=ServerOptions.port, help="port to listen on; 0 takes a free one (8189)"
    )
    parser.add_argument("--engine", default="auto", help=f"auto, {', '.join(n for n in ENGINES if n != 'torch')}")
    parser.add_argument("--workers", type=int, help="processes that share the port (one for each four cores)")
    parser.add_argument("--threads", type=int, help="threads of a worker (the cores, shared by the workers)")
    parser.add_argument(
        "--streams",
        type=int,
        help="batches of a model at once, its threads shared: more answers, each slower (2, of one thread 1)",
    )
    parser.add_argument("--api_key", metavar="KEY", help=f"ask for this key; others see it in ps: better ${KEY}")
    flags.add_options(parser, Limits)
    parser.add_argument("--json", action="store_true", help="print one JSON object when requests are taken")


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    models = flags.needed_model(arguments)
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise missing_package(package, "tersely serve", "serve")
    from ..serve.run import run as serve

    workers, threads = share_cores(arguments.workers, arguments.threads)
    streams = min(STREAMS, threads) if arguments.streams is None else arguments.streams
    if not 1 <= streams <= threads:
        raise wrong_option("streams", f"must be from 1 to the {threads} threads. Got {streams}.")
    settings = ServerOptions(
        named_folders(models),
        arguments.host,
        arguments.port,
        arguments.engine,
        workers,
        threads,
        streams,
        _key(arguments.api_key),
        flags.take(arguments, Limits),
    )
    serve(settings, lambda address: _say(settings, address, arguments.json))
    return 0


def _key(flag: str | None) -> str | None:
    key = os.environ.get(KEY) if flag is None else flag
    if key is not None and (not key.strip() or not key.isascii() or not key.isprintable()):
        raise UserError("The API key must be plain characters, at least one.", hint=f"See --api_key and ${KEY}.")
    return key


def _say(settings: ServerOptions, address: str, as_json: bool) -> None:
    if as_json:
        shared = {"workers": settings.workers, "threads": settings.threads}
        console.emit({"address": address, "models": list(settings.folders), **shared, "pid": os.getpid()})
        sys.stdout.flush()
        return
    console.progress().say(
        f"Serving {', '.join(settings.folders)} on {address} "
        f"({settings.workers} worker{'s' * (settings.workers > 1)} of {settings.threads} thread"
        f"{'s' * (settings.threads > 1)}). Stop with Ctrl-C."
    )
