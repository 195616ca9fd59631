"""A checksum that both testbenches can compute: no protection, but a changed character is always found."""

from __future__ import annotations

import numpy as np


def checksum(text: str) -> int:
    """``sum of character_i * 31^(n - 1 - i)`` modulo 2^32, over the n characters of an ASCII text.

    31 is odd, so that one changed character always changes the sum.
    """
    characters = np.frombuffer(text.encode("ascii"), dtype=np.uint8).astype(np.uint32)
    powers = np.full(characters.size, 31, dtype=np.uint32)
    powers[:1] = 1
    return int((characters * np.multiply.accumulate(powers, dtype=np.uint32)[::-1]).sum(dtype=np.uint32))
