"""The C++ of a network compiled by g++ and run as a process of its own, on arrays of integers."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from hawq_flow import images, tools
from hawq_flow.interpret import check_inputs
from hawq_flow.network import IntegerNetwork
from hawq_flow.numeric import IntArray
from hawq_flow.to_cpp.check import checker
from hawq_flow.to_cpp.source import generate, ports
from hawq_flow.to_cpp.words import CppError

FLAGS = ("-std=c++11", "-O2", "-ftree-vectorize", "-fpeel-loops")
"""g++'s flags, nothing of the machine that compiles among them. (-O3 does more, and makes a Dense a fifth slower.)"""
CHECK = "check.cpp"


@dataclass(frozen=True)
class CppProgram:
    """A compiled network: its checking program.

    Attributes
    ----------
    network:
        What it was generated from.
    program:
        The executable: ``check`` of the checker.
    method:
        What it is, in words for a certificate.
    compile_seconds:
        Wall clock of g++.
    """

    network: IntegerNetwork
    program: Path
    method: str
    compile_seconds: float

    def run(self, x: ArrayLike | Mapping[str, ArrayLike], *, timeout_s: float = 600.0) -> dict[str, IntArray]:
        """Compute integers (n, *input shape), or a mapping of them; every output by name, int64 (n, *shape).

        Raises
        ------
        NetworkError
            If an array does not match its input.
        ToolError
            If the program fails or exceeds ``timeout_s`` seconds.
        CppError
            If it prints another number of integers than the outputs have.
        """
        _, made = ports(self.network)
        sizes = self._sizes(made)
        rows, printed = self._printed("--run", x, timeout_s)
        flat = np.array(printed.split(), dtype=np.int64)
        if flat.size != rows * sum(sizes):
            raise CppError(
                f"{self.program.name}: {flat.size} integers came back; expected {sum(sizes)} for {rows} rows"
            )
        parts = np.split(flat.reshape(rows, sum(sizes)), np.cumsum(sizes)[:-1], axis=1)
        return {name: self._shaped(name, part) for name, part in zip(made, parts, strict=True)}

    def trace(self, x: ArrayLike | Mapping[str, ArrayLike], *, timeout_s: float = 600.0) -> dict[str, IntArray]:
        """Every value by name, inputs included, int64 (n, *shape); raises as :meth:`run`."""
        values = list(self.network.values)
        rows, printed = self._printed("--trace", x, timeout_s)
        lines = printed.splitlines()
        result = {}
        for i, name in enumerate(values):
            found = [line.split() for line in lines[i :: len(values)]]
            if len(lines) != rows * len(values) or any(fields[0] != name.encode() for fields in found):
                raise CppError(f"{self.program.name}: {len(lines)} lines came back; expected {rows} with {name}")
            flat = np.array([fields[1:] for fields in found], dtype=np.int64)
            result[name] = self._shaped(name, flat.reshape(rows, *self._sizes([name])))
        return result

    def _sizes(self, names: list[str]) -> list[int]:
        return [int(np.prod(self.network.values[name].shape)) for name in names]

    def _shaped(self, name: str, flat: IntArray) -> IntArray:
        return np.asarray(flat.reshape(len(flat), *self.network.values[name].shape))

    def _printed(self, option: str, x: ArrayLike | Mapping[str, ArrayLike], timeout_s: float) -> tuple[int, bytes]:
        given = check_inputs(self.network, x)
        rows = len(next(iter(given.values())))
        if rows == 0:
            return 0, b""
        work = tools.fresh_folder(self.program.parent, "run")
        flat = [given[spec.name].reshape(rows, -1) for spec in self.network.inputs]
        (work / "inputs.txt").write_text(images.decimal(np.concatenate(flat, axis=1)))
        done = tools.run(
            [self.program.resolve(), option, "inputs.txt"],
            folder=work,
            timeout_s=timeout_s,
            stdout=work / "printed.txt",
            log=work / "log.txt",
        )
        done.require("run the C++ of the network")
        printed = (work / "printed.txt").read_bytes()
        shutil.rmtree(work)
        return rows, printed


def write(
    network: IntegerNetwork,
    folder: Path | str,
    name: str = "network",
    *,
    rows: int | None = None,
    layer_rows: int | None = None,
) -> Path:
    """Write ``NAME.h``, ``NAME.cpp`` and ``check.cpp`` (:func:`checker`) into a folder (created); the folder."""
    folder = Path(folder)
    made, check = generate(network, name), checker(network, name, rows=rows, layer_rows=layer_rows)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in ((f"{name}.h", made.header), (f"{name}.cpp", made.source), (CHECK, check)):
        (folder / file).write_text(text)
    return folder


def compile_program(
    network: IntegerNetwork,
    build: Path | str,
    *,
    name: str = "network",
    flags: tuple[str, ...] = FLAGS,
    timeout_s: float = 1800.0,
) -> CppProgram:
    """Write a network's C++ into a fresh folder under ``build`` and compile it there.

    Raises
    ------
    ToolError
        If g++ is missing, fails or exceeds ``timeout_s`` seconds; the text has its last lines.
    """
    folder = write(network, tools.fresh_folder(build, f"{name}-cpp"), name)
    command = ["g++", *flags, CHECK, f"{name}.cpp", "-o", "check"]
    done = tools.run(command, folder=folder, timeout_s=timeout_s, log=folder / "g++.log")
    done.require("compile the C++ of the network")
    method = f"C++ of plain integers, generated from the network; g++ {' '.join(flags)}"
    return CppProgram(network, folder / "check", method, done.seconds)
