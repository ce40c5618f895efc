"""CPU classes from the words of real machines (`flags` shortened to what is near the ones that decide)."""

from __future__ import annotations

import os

import pytest

from tersely.engines.cpu import CLASSES, cpu, parse_cpuinfo, parse_sysctl


def x86(name: str, flags: str, cores: int = 2, hyper: int = 1) -> str:
    blocks = [
        f"processor\t: {number}\nvendor_id\t: x\nmodel name\t: {name}\nphysical id\t: 0\n"
        f"core id\t\t: {number % cores}\nflags\t\t: fpu sse sse2 ssse3 sse4_1 sse4_2 {flags}\nbogomips\t: 4890.84\n"
        for number in range(cores * hyper)
    ]
    return "\n".join(blocks)


ZEN3 = x86("AMD EPYC 7763 64-Core Processor", "fma avx f16c avx2 bmi2 vaes vpclmulqdq rdpid fsrm")
ZEN4 = x86("AMD EPYC 9654 96-Core Processor", "avx avx2 avx512f avx512bw avx512_bf16 avx512_vnni avx512_bitalg")
SKYLAKE = x86(
    "Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz", "fma avx avx2 avx512f avx512dq avx512cd avx512bw avx512vl"
)
ICE_LAKE = x86("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "avx2 avx512f avx512bw avx512vl avx512vbmi avx512_vnni")
SAPPHIRE = x86(
    "Intel(R) Xeon(R) Platinum 8488C", "avx2 avx512bw avx_vnni avx512_bf16 avx512_vnni amx_bf16 amx_tile amx_int8"
)
ALDER_LAKE = x86("12th Gen Intel(R) Core(TM) i7-12700", "fma avx avx2 bmi2 erms avx_vnni gfni vaes vpclmulqdq")
NEHALEM = x86("Intel(R) Xeon(R) CPU X5570 @ 2.93GHz", "cx16 dca popcnt")
OLD = "processor\t: 0\nmodel name\t: AMD Athlon(tm) 64\nflags\t\t: fpu sse sse2 ht syscall nx lm\n"
GRAVITON3 = """processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd aes crc32 atomics asimdhp asimdrdm asimddp sha512 sve asimdfhm svei8mm svebf16 i8mm bf16 rng
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1

processor\t: 1
BogoMIPS\t: 2100.00
Features\t: fp asimd asimddp sve i8mm bf16
CPU part\t: 0xd40
"""
PI4 = "processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm crc32 cpuid\nCPU part\t: 0xd08\n"


@pytest.mark.parametrize(
    ("text", "cpu_class", "bf16"),
    [
        (ZEN3, "avx2", False), (ZEN4, "vnni", True), (SKYLAKE, "avx2", False), (ICE_LAKE, "vnni", False),
        (SAPPHIRE, "amx", True), (ALDER_LAKE, "vnni", False), (NEHALEM, "avx2", False), (OLD, "other", False),
        (GRAVITON3, "vnni", True), (PI4, "other", False), ("", "other", False),
    ],
    ids=["zen3", "zen4", "skylake", "ice_lake", "sapphire_rapids", "alder_lake", "nehalem", "athlon64", "graviton3",
         "raspberry_pi4", "empty"],
)  # fmt: skip
def test_class_and_bf16_follow_the_flags(text, cpu_class, bf16):
    found = parse_cpuinfo(text)
    assert (found.cpu_class, found.bf16) == (cpu_class, bf16)


def test_name_and_flags_are_the_machines_own():
    found = parse_cpuinfo(ICE_LAKE)
    assert found.name == "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"
    assert "avx512_vnni" in found.flags
    assert "fpu" not in found.flags


def test_hyper_threads_count_once_and_only_available_processors_count():
    text = x86("any", "avx2", cores=4, hyper=2)
    assert parse_cpuinfo(text).cores == 4
    assert parse_cpuinfo(text, available={0, 4}).cores == 1
    assert parse_cpuinfo(text, available={0, 1, 2}).cores == 3
    assert parse_cpuinfo(GRAVITON3, available={0, 1}).cores == 2


def test_a_containers_share_limits_the_cores():
    text = x86("any", "avx2", cores=8)
    assert parse_cpuinfo(text, quota=1.5).cores == 2
    assert parse_cpuinfo(text, quota=0.2).cores == 1
    assert parse_cpuinfo(text, quota=64).cores == 8


def test_macs_are_told_apart():
    apple = (
        "machdep.cpu.brand_string: Apple M2\nhw.physicalcpu: 8\nhw.perflevel0.physicalcpu: 4\n"
        "hw.optional.arm.FEAT_DotProd: 1\nhw.optional.arm.FEAT_BF16: 1\n"
    )
    found = parse_sysctl(apple)
    assert (found.name, found.cpu_class, found.bf16, found.cores) == ("Apple M2", "vnni", True, 4)
    intel = (
        "machdep.cpu.brand_string: Intel(R) Core(TM) i5\nhw.physicalcpu: 4\n"
        "hw.optional.avx2_0: 1\nhw.optional.avx512bw: 0\n"
    )
    assert parse_sysctl(intel).cpu_class == "avx2"


def test_this_machine_is_described():
    found = cpu()
    assert found.cpu_class in CLASSES
    assert 1 <= found.cores <= (os.cpu_count() or 1)
