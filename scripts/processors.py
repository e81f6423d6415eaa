#!/usr/bin/env python3
"""The core types of OpenBLAS, one a line, under which tests are run besides the machine's own (OPENBLAS_CORETYPE): sums end in other
digits on another processor. Those that this machine cannot execute are named on stderr.

Usage: processors.py          all of them
       processors.py --own    the machine's own, or that of OPENBLAS_CORETYPE
       processors.py --two    two that are not the machine's own, as far apart as it has them
"""
import ctypes
import os
import re
import sys

AVX512 = "avx512f avx512cd avx512bw avx512dq avx512vl"
NEEDS = {"Nehalem": "sse4_2", "Sandybridge": "sse4_2 avx", "Haswell": "avx2 fma", "Zen": "avx2 fma", "SkylakeX": AVX512,
         "Cooperlake": f"{AVX512} avx512_bf16"}
FIRST = ["Haswell", "SkylakeX", "Nehalem", "Sandybridge"]


def split(flags):
    """Types that a processor with these flags can execute, and those that it cannot."""
    able = [name for name, needs in NEEDS.items() if set(needs.split()) <= flags]
    return able, [name for name in NEEDS if name not in able]


def two_of(able, own):
    return [name for name in FIRST if name in able and name.lower() != own.lower()][:2]


def own_type():
    """Of this process, so that OPENBLAS_CORETYPE counts."""
    try:
        blas = ctypes.CDLL("libopenblas.so.0")
    except OSError:
        return os.environ.get("OPENBLAS_CORETYPE", "")
    blas.openblas_get_corename.restype = ctypes.c_char_p
    return blas.openblas_get_corename().decode()


def main():
    if "--own" in sys.argv[1:]:
        print(own_type())
        return
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        found = re.search(r"^flags\s*:(.*)$", info.read(), re.MULTILINE)
    able, unable = split(set(found.group(1).split()) if found else set())
    if "--two" in sys.argv[1:]:
        able = two_of(able, own_type())
    elif unable:
        print("processors: this machine cannot execute " + ", ".join(unable), file=sys.stderr)
    print("\n".join(able))


if __name__ == "__main__":
    main()
