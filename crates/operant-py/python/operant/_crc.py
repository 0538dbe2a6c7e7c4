"""CRC-32C (Castagnoli; RFC 3720, appendix B.4) with NumPy: the checksum of a store's records."""

from __future__ import annotations

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78
# Bytes that one lane goes through; a long record has many lanes.
_LANE = 64


@functools.cache
def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


def _applied(columns: np.ndarray, crc: np.ndarray) -> np.ndarray:
    """A linear map of 32 bits, by what it makes of each bit."""
    bits = (crc[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    return np.bitwise_xor.reduce(np.where(bits, columns, np.uint32(0)), axis=1)


@functools.cache
def _zeros(log_bytes: int) -> np.ndarray:
    """What 2**log_bytes zero bytes make of each bit of a CRC."""
    if log_bytes == 0:
        bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
        return _table()[bits & 0xFF] ^ (bits >> 8)
    half = _zeros(log_bytes - 1)
    return _applied(half, half)


def crc32c(data: bytes) -> int:
    """The CRC of bytes."""
    lanes = 1 << max(0, -(-max(len(data), 4) // _LANE) - 1).bit_length()
    # Zeros in front change nothing of a CRC that begins with 0; one that begins with ones inverts four bytes of the data.
    padded = np.zeros(lanes * _LANE, np.uint8)
    if data:
        padded[-len(data) :] = np.frombuffer(data, np.uint8)
    if len(data) < 4:
        crc = 0xFFFFFFFF
        for byte in data:
            crc = int(_table()[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF
    padded[len(padded) - len(data) :][:4] ^= 0xFF
    table, crc = _table(), np.zeros(lanes, np.uint32)
    for column in padded.reshape(lanes, _LANE).T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> 8)
    log_bytes = _LANE.bit_length() - 1
    while len(crc) > 1:
        crc = _applied(_zeros(log_bytes), crc[::2]) ^ crc[1::2]
        log_bytes += 1
    return int(crc[0]) ^ 0xFFFFFFFF
