"""Chunks that `operant collect field` compressed: Blosc's format 2 with shuffled bytes and zlib, with NumPy alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_LEAST, _MOST = 128, 2**31 - 1 - 2**20
_SHUFFLED_WHOLE_ZLIB = 1 | 1 << 4 | 3 << 5


def unpacked(chunk: bytes, length: int) -> bytes | None:
    """The ``length`` bytes of a chunk; None where it is not such a chunk. Chunks of very few or many bytes are not compressed."""
    if not _LEAST <= length <= _MOST:
        return chunk if len(chunk) == length else None
    try:
        version, _, flags, size, total, block, packed = struct.unpack_from("<BBBBIII", chunk)
        if (version, flags, total, packed) != (2, _SHUFFLED_WHOLE_ZLIB, length, len(chunk)):
            return None
        out = np.empty(length, np.uint8)
        for number, first in enumerate(range(0, length, block)):
            (at,) = struct.unpack_from("<I", chunk, 16 + 4 * number)
            (kept,) = struct.unpack_from("<I", chunk, at)
            data, wanted = chunk[at + 4 : at + 4 + kept], min(block, length - first)
            data = data if kept == wanted else zlib.decompressobj().decompress(data, wanted)
            # Bytes of the first place of all numbers come first.
            out[first : first + wanted] = np.frombuffer(data, np.uint8).reshape(size, wanted // size).T.ravel()
    except (struct.error, zlib.error, ValueError, ZeroDivisionError):
        return None
    return out.tobytes()
