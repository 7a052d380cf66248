"""Code that several units share: checksums, hashes of keys, and the guard of the event loop.

    numbers and checksums       crc32c, murmur2, partition_for_key, read_varint
    arguments                   int_of, thrown
    event loops                 LoopGuard: refuses calls on other loops and threads

Tests: tests/unit/fastpath/test_checksums.py, test_guard.py.
"""

# Hot path, measured by benchmarks/micro/core.py.

from __future__ import annotations

import asyncio
import struct
import sys

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.checksums import aiokq_crc32c, aiokq_crc32c_setup
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyBytes_AS_STRING,
        PyBytes_GET_SIZE,
        PyObject_GetBuffer,
        aiokq_murmur2,
    )
else:
    from aiokq.fastpath.pure import crc32c as _crc32c

__all__ = ["LoopGuard", "SOURCE_HASH", "crc32c", "murmur2", "partition_for_key"]


# ---------------------------------------------------------------- numbers and checksums


def crc32c(data, value=0):
    """Return the CRC-32C (Castagnoli) of `data`, continued from `value`.

    Args:
        data: any C-contiguous buffer.
        value: the CRC of the bytes before `data`.

    Raises:
        BufferError: the buffer is not contiguous.
    """
    if cython.compiled:
        start: cython.uint = value
        # The generated code of a typed memoryview would double the import time of this module.
        buffer = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        try:
            return aiokq_crc32c(start, cython.cast(cython.p_uchar, buffer.buf), buffer.len)
        finally:
            PyBuffer_Release(cython.address(buffer))
    else:
        return _crc32c(data, value)


def murmur2(key):
    """Return the murmur2 hash of a key, as Kafka's Java client computes it, unsigned (32 bits).

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    data: bytes = bytes(key)
    if cython.compiled:
        return aiokq_murmur2(
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(data)), PyBytes_GET_SIZE(data)
        )
    else:
        length = len(data)
        m = 0x5BD1E995
        h = 0x9747B28C ^ length
        words = length >> 2
        for k in struct.unpack_from(f"<{words}I", data):
            k = k * m & 0xFFFFFFFF
            k ^= k >> 24
            h = (h * m & 0xFFFFFFFF) ^ (k * m & 0xFFFFFFFF)
        tail = data[words << 2 :]
        if tail:
            h = (h ^ int.from_bytes(tail, "little")) * m & 0xFFFFFFFF
        h ^= h >> 13
        h = h * m & 0xFFFFFFFF
        return h ^ h >> 15


def partition_for_key(key, partitions):
    """Return the partition that the default partitioner of Kafka's Java client chooses for a key.

    Args:
        partitions: number of partitions of the topic.

    Raises:
        ValueError: `partitions` is not positive.
    """
    if partitions <= 0:
        raise ValueError("a topic has at least one partition")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def read_varint(data, at):
    bits = shift = 0
    while True:
        byte = data[at]
        at += 1
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (bits >> 1) ^ -(bits & 1), at
        shift += 7
        if shift > 63:
            raise IndexError("a varint too long")


# ---------------------------------------------------------------- arguments


def int_of(value, name, bits):
    """Return `value` if it is an int that fits into a signed C integer of `bits` bits.

    Args:
        name: name of the argument, for the error message.

    Raises:
        TypeError: `value` is not an int, or is a bool.
        ValueError: `value` does not fit.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is an int, not {value!r}")
    if value.bit_length() >= bits and value != -(1 << bits - 1):
        raise ValueError(f"{name}={value}: must be from -2**{bits - 1} to 2**{bits - 1} - 1")
    return value


def thrown(kind, value, traceback):
    """Return the exception to raise for the three arguments of a generator's throw()."""
    if isinstance(kind, BaseException):
        error = kind
    elif isinstance(value, BaseException):
        error = value
    else:
        error = kind() if value is None else kind(value)
    return error.with_traceback(traceback) if traceback is not None else error


# ---------------------------------------------------------------- event loops


@cython.final
@cython.cclass
class LoopGuard:
    """Refuses the use of an object on an event loop or in a thread that is not the object's own.

    A running loop sets its thread's hook for asynchronous generators to one of the loop's methods.
    Therefore one comparison with the last accepted hook identifies loop and thread. A call of
    asyncio.get_running_loop() would take as long as appending a record.

    Args:
        check: called when the hook differs; raises an error if the running loop is not the
            object's. None accepts any loop.
    """

    __slots__ = ("check", "hook")

    def __init__(self, check=None):
        self.check = check
        self.hook = None

    def require(self):
        """Raise the error of `check` if the running loop or the thread is not the object's own."""
        require_loop(self)

    def forget(self):
        """Forget the accepted hook, so that `check` is called again; called after a fork."""
        self.hook = None


@cython.cfunc
@cython.exceptval(-1)
def look_closer(guard: LoopGuard) -> cython.int:
    if guard.check is None:
        return 0
    hook = sys.get_asyncgen_hooks().firstiter
    if hook is None or hook is not guard.hook:
        guard.check()
        # A hook set by other code, or by another loop, does not identify this loop.
        own = getattr(hook, "__self__", None)
        guard.hook = hook if own is asyncio.get_running_loop() else None
    return 0


if not cython.compiled:
    # The compiled version is inline in _shared.pxd: it runs once per record.
    require_loop = look_closer


NO_GUARD = LoopGuard()


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_crc32c_setup()
else:
    SOURCE_HASH = ""
