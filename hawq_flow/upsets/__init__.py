"""Single event upsets: one bit of the network's integers flips; what does it cost, and what would repay triplication?

The fault model. A particle flips one stored bit. A *site* is one bit of one word, and words are two's complement (plain
binary when unsigned) at their true width:

* memory: ``weight``, ``bias``, ``multiplier``, ``shift``, ``offset`` and ``table``, each array of an op as it is
  stored in the network. All words of an array are as wide as the narrowest type that holds them all. The flip stays
  until the memory is written again, so every row is computed with it. Arrays of zeros (no bias, no offset, no shift)
  are no memory.
* registers: ``accumulator``, the finished sum of a Dense, Conv, SumPool, ReduceSum, Add, Subtract, or the product of a
  Multiply, and ``activation``, the result of a Requantize or Lookup: one element of the value, at the width of the
  value's type (derived by the interval proof, or declared). The flip lasts one inference; figures average over rows.

Flipping bit b of a word of W bits adds ``+2^b`` where it was 0 and ``-2^b`` where it was 1; for b = W - 1 of a signed
word the signs are exchanged.

What the faulty network computes. The hardware was sized by a proof about the healthy network, and a flip may break the
proof, so what happens then is defined as the firmware would do it: *every value stands in a register of its own type*.
The exact result of an op, given what really arrives, is taken modulo 2^bits into the type of its value::

    register(v) = low + ((v - low) mod 2^bits)

What saturates in the healthy network still does, before that: a Requantize clips to its type (its product and its sum
with the offset are as wide as they need be), and a declared saturating accumulator clips what its sum's register, of
the sum's derived type, holds. A table's address is clipped to its ends. In the healthy network this changes nothing.

The speed. The healthy network runs once. ``w[o, i] -> w[o, i] + d`` changes the sums of output o alone, by ``d x_i``
(for a convolution, by d times the input seen through that tap); a flip elsewhere is as local. Pairs (flip, row) whose
changed integers equal the healthy ones are done: rounding and clipping absorb many. The others go through the
rest of the network together, as rows of one batch, in the interpreter's floats, which are proven wide enough again,
for registers that may hold anything their type can; pairs drop out wherever they meet the healthy values. See
``registers``, ``faults`` and ``campaign``.

The statistics (``statistics``) are those of a stratified sample without replacement (Cochran, Sampling Techniques;
for fault injection: Leveugle et al., DATE 2009; Ruospo et al., DATE 2023); a stratum is one bit of one kind of one op.

What this does not say: FPGA configuration memory, where a constant that was dissolved in LUTs and wires would be hit,
has other faults than a flipped bit of the constant. Control logic, clocks, several bits at once and pulses in
combinational logic are not modelled either.
"""

from hawq_flow.upsets.campaign import EXHAUSTIVE, SAMPLES, outputs, run
from hawq_flow.upsets.figures import heat_map, protection_figure, save
from hawq_flow.upsets.protection import Candidate, Protection, protection, single_bits
from hawq_flow.upsets.result import LayerRisk, StratumResult, Upsets
from hawq_flow.upsets.sites import KINDS, MEMORY, REGISTERS, Stratum, UpsetError, strata
from hawq_flow.upsets.text import csv, document, flips_frame, markdown
from hawq_flow.upsets.writing import make, write

__all__ = [
    "EXHAUSTIVE",
    "KINDS",
    "MEMORY",
    "REGISTERS",
    "SAMPLES",
    "Candidate",
    "LayerRisk",
    "Protection",
    "Stratum",
    "StratumResult",
    "UpsetError",
    "Upsets",
    "csv",
    "document",
    "flips_frame",
    "heat_map",
    "make",
    "markdown",
    "outputs",
    "protection",
    "protection_figure",
    "run",
    "save",
    "single_bits",
    "strata",
    "write",
]
