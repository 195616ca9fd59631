"""The compiled library: built once for a compiler and a processor, kept in the user's cache, loaded by ctypes.

Its file is named by a hash of the source, the flags and what g++ says it would do with them, which names its version
and the processor's instructions. It is compiled elsewhere and renamed into place: whoever looks sees all of it or none.
Behind the library stands its own SHA-256, since loading a file that lost its end kills the process: one that does not
match is compiled anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

from hawq_flow import store, tools
from hawq_flow.fast_train.kernels import KERNELS
from hawq_flow.fast_train.layers import LAYERS
from hawq_flow.fast_train.network import NETWORK
from hawq_flow.quant.layer import FINEST

SOURCE = f"{KERNELS}\nconstexpr int FINEST = {FINEST};\n{LAYERS}\n{NETWORK}"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
"""No -ffast-math: it would take the rounding apart, and NaN for a number. (A product and a sum may fuse.)"""
_SHARED = ("-fPIC", "-shared")
_COMPILER = re.compile(r"gcc version|.*clang version|Target:| .*(cc1plus|-cc1)")
TIMEOUT_S = 600.0


def cache_folder() -> Path:
    """Where compiled libraries are kept: ``hawq_flow/fast_train`` in the user's cache folder (XDG_CACHE_HOME)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "hawq_flow" / "fast_train"


def build(flags: tuple[str, ...] = FLAGS) -> Path:
    """The library's file, compiled if it is not there whole.

    Raises
    ------
    ToolError
        If g++ is missing or fails; the text has its last lines.
    OSError
        If the cache folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="hawq_flow-") as name:
        work = Path(name)
        # -###: say what would be done, -march=native spelled out, and do nothing.
        ask = ["g++", "-###", *flags, *_SHARED, "-x", "c++", "-S", "-o", os.devnull, os.devnull]
        said = tools.run(ask, folder=work, timeout_s=60, log=work / "ask.log", environment={"LC_ALL": "C"})
        said.require("ask g++ for its version")
        lines = (work / "ask.log").read_text(errors="replace").splitlines()
        compiler = [line for line in lines if _COMPILER.match(line)]
        key = store.canonical_digest({"source": SOURCE, "flags": flags, "compiler": compiler})
        path = cache_folder() / f"{key}.so"
        if not _whole(path):
            (work / "fast_train.cpp").write_text(SOURCE)
            command = ["g++", *flags, *_SHARED, "fast_train.cpp", "-o", "fast_train.so"]
            done = tools.run(command, folder=work, timeout_s=TIMEOUT_S, log=work / "g++.log")
            done.require("compile the training path")
            made = work / "fast_train.so"
            if not made.is_file():
                raise tools.ToolError(
                    "compile the training path: g++ ended well but made no library; is it a compiler?"
                )
            content = made.read_bytes()
            store.write_atomic(path, content + hashlib.sha256(content).digest())
        return path


def _whole(path: Path) -> bool:
    if not path.is_file():
        return False
    content = path.read_bytes()
    return hashlib.sha256(content[:-32]).digest() == content[-32:]
