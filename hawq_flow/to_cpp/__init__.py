"""IntegerNetwork -> one readable C++11 file of plain integer arithmetic and its checking program, run from Python.

The file is for an engineer with a debugger: a namespace for each op with its constants and one function of ``for``
loops over arrays of the value's own shape, and a struct with every value of the network by its own name. It uses
``<cstdint>`` and nothing else: no floats, no templates beyond four helpers of one line, no state.

Exactness is by proof, as in the interpreter. ``Value.bound`` bounds every intermediate of an op: partial sums in any
order, the product before a shift, its rounding half. Below 2^31 the op computes in ``int32_t``, else in ``int64_t``;
values and constants are stored in the narrowest ``intN_t`` that holds their types, and no signed sum can overflow. The
one thing C++11 leaves to the implementation, the right shift of a negative number, is asserted when the file is
compiled.

Modules: ``words`` (C++ types, literals, names), ``ops`` (the function of each op), ``source`` (header and source),
``check`` (the checking program), ``program`` (compiled and run).
"""

from hawq_flow.to_cpp.check import checker
from hawq_flow.to_cpp.program import FLAGS, CppProgram, compile_program, write
from hawq_flow.to_cpp.source import Cpp, generate
from hawq_flow.to_cpp.words import CppError

__all__ = ["FLAGS", "Cpp", "CppError", "CppProgram", "checker", "compile_program", "generate", "write"]
