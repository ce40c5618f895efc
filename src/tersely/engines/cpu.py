"""Which class of CPU this machine is: it decides how fast, and on old ones how right, INT8 arithmetic is."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

CLASSES = ("amx", "vnni", "avx2", "other")
EXACT_CLASSES = ("amx", "vnni")
"""Those whose integer sums have 32 bits."""

# `avx2` holds all that sum u8×s8 pairs in saturating 16 bits (pmaddubsw), AVX512 without VNNI and SSE too.
_CLASS_FLAGS: dict[str, frozenset[str]] = {
    "amx": frozenset({"amx_int8"}),
    "vnni": frozenset({"avx512_vnni", "avx_vnni", "asimddp", "i8mm"}),
    "avx2": frozenset({"avx2", "avx512bw", "ssse3", "sse4_1"}),
}
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_SHOWN_FLAGS = frozenset().union(*_CLASS_FLAGS.values(), _BF16_FLAGS, {"avx512f", "amx_tile", "avx", "fma", "sve"})
# What macOS calls the features that Linux lists under other names.
_SYSCTL_NAMES = {
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
    "hw.optional.avx2_0": "avx2",
    "hw.optional.avx512bw": "avx512bw",
    "hw.optional.avx512vnni": "avx512_vnni",
    "hw.optional.sse4_1": "sse4_1",
}


@dataclass(frozen=True)
class Cpu:
    """`flags` are those that matter here, sorted; `cores` are physical ones that this process may use."""

    name: str
    cpu_class: str
    flags: tuple[str, ...]
    bf16: bool
    cores: int


def cpu() -> Cpu:
    """Describe this machine's CPU by what it says of itself (virtual machines may hide or invent flags)."""
    if platform.system() == "Linux":
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return parse_cpuinfo(text, available=os.sched_getaffinity(0), quota=_quota())
    if platform.system() == "Darwin":
        answer = subprocess.run(["sysctl", "-a"], capture_output=True, text=True, check=False)
        return parse_sysctl(answer.stdout)
    # Elsewhere nothing short of a compiled extension tells the flags. All x86-64 that engines run on have SSE4.1.
    x86 = platform.machine().lower() in {"amd64", "x86_64"}
    return Cpu(platform.processor() or platform.machine(), "avx2" if x86 else "other", (), False, os.cpu_count() or 1)


def threads_or_all(threads: int | None) -> int:
    """The number of threads asked for, or one per core that this process may use."""
    return cpu().cores if threads is None else threads


def classify(flags: Collection[str]) -> str:
    """The best class whose flags are among these.

    >>> classify({"sse4_1", "avx2", "avx512_vnni"})
    'vnni'
    """
    return next((name for name, wanted in _CLASS_FLAGS.items() if wanted & set(flags)), "other")


def parse_cpuinfo(text: str, *, available: Collection[int] | None = None, quota: float | None = None) -> Cpu:
    """Read the text of Linux's /proc/cpuinfo; `available` are the processors this process may run on."""
    processors = [_fields(block) for block in text.split("\n\n") if block.strip()]
    numbered = [fields for fields in processors if fields.get("processor", "").isdigit()]
    usable = [fields for fields in numbered if available is None or int(fields["processor"]) in available]
    # Two hyper-threads share one core's multipliers: a second thread there slows matrix products down.
    cores = {(f.get("physical id"), f.get("core id", f["processor"])) for f in usable}
    first = numbered[0] if numbered else {}
    flags = set((first.get("flags") or first.get("Features") or "").split())
    count = len(cores) or len(available or ()) or os.cpu_count() or 1
    name = first.get("model name") or first.get("CPU part") or platform.machine()
    return _describe(name, flags, count if quota is None else max(1, min(count, math.ceil(quota))))


def parse_sysctl(text: str) -> Cpu:
    """Read what `sysctl -a` says on macOS, Intel or Apple silicon."""
    fields = _fields(text)
    flags = {flag for name, flag in _SYSCTL_NAMES.items() if fields.get(name) == "1"}
    cores = fields.get("hw.perflevel0.physicalcpu") or fields.get("hw.physicalcpu") or ""
    name = fields.get("machdep.cpu.brand_string") or platform.machine()
    return _describe(name, flags, int(cores) if cores.isdigit() else os.cpu_count() or 1)


def _describe(name: str, flags: set[str], cores: int) -> Cpu:
    shown = tuple(sorted(flags & _SHOWN_FLAGS))
    return Cpu(name, classify(flags), shown, bool(flags & _BF16_FLAGS), cores)


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _quota() -> float | None:
    """Cores' worth of time that a container may use (cgroup v2), or None: threads beyond it only wait."""
    path = Path("/sys/fs/cgroup/cpu.max")
    if not path.is_file():
        return None
    limit, _, period = path.read_text(encoding="ascii").strip().partition(" ")
    return int(limit) / int(period) if limit.isdigit() and period.isdigit() else None
