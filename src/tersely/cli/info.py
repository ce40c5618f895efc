"""Show versions, this machine's CPU class, and the engines that are installed."""

from __future__ import annotations

import argparse
from typing import Any

from .. import __version__, engines
from ..compression import versions
from ..engines.cpu import cpu
from ..engines.saturation import PRODUCTS, saturates
from . import console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Look, print."""
    found = gather()
    if arguments.json:
        console.emit(found)
        return 0
    here = found["cpu"]
    print(f"tersely {__version__}, Python {found['python']}, {found['system']}")
    print(f"CPU: {here['name']}, {here['cores']} cores, class {here['class']} ({' '.join(here['flags'])})")
    print(f"INT8: {here['int8']}")
    for name, measured in here["int8_measured"].items():
        print(f"INT8 on {name}, measured: {measured}")
    print(f"bf16: {here['bf16_note']}")
    rows = [[name, version or "not installed"] for name, version in found["packages"].items()]
    console.table("packages", ["package", "version"], rows)
    print(f"engines: {', '.join(found['engines']) or 'none'}")
    return 0


def gather() -> dict[str, Any]:
    """Look at this machine."""
    here = cpu()
    return {
        "tersely": __version__,
        "python": versions.python(),
        "system": versions.system(),
        "cpu": {
            "name": here.name,
            "cores": here.cores,
            "class": here.cpu_class,
            "flags": list(here.flags),
            "int8": INT8[here.cpu_class],
            "int8_measured": {name: _measured(name) for name in engines.installed() if name in PRODUCTS},
            "bf16": here.bf16,
            "bf16_note": "yes" if here.bf16 else "no: this CPU lists none of avx512_bf16, amx_bf16, bf16",
        },
        "packages": versions.packages(),
        "engines": list(engines.installed()),
    }


INT8 = {
    "amx": "exact 32-bit sums, matrix tiles",
    "vnni": "exact 32-bit sums",
    "avx2": "pairs of products are summed in saturating 16 bits: full 8-bit weights can overflow here",
    "other": "no fast INT8 instructions known",
}


def _measured(engine: str) -> str:
    try:
        return "sums saturate" if saturates(engine) else "sums are exact"
    except (ImportError, RuntimeError) as error:  # a broken install: what this command is to show
        return f"cannot be run: {error}"
