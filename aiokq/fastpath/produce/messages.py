"""produce_body and read_answers: Produce requests and their responses, without message objects.

Tests: tests/unit/fastpath/test_messages.py.
"""

# Hot path, measured by benchmarks/micro/producer.py.

from __future__ import annotations

import struct

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
        PyUnicode_DecodeUTF8,
        aiokq_i16,
        aiokq_i32,
        aiokq_i64,
        int32_t,
        int64_t,
    )

__all__ = ["produce_body", "read_answers"]

_COPY_BELOW = 1024
"""A batch of fewer bytes is copied into the fragment with other fields, as in `aiokq.wire`."""

_LONGEST = 2**15 - 1
"""Maximum number of bytes of a string."""

_PARTITION = struct.Struct(">ihqqqBBB")
_THROTTLE = struct.Struct(">iB")
_PARTITION_BYTES = 33


def produce_body(version, transactional_id, acks, timeout_ms, topics):
    """Return a Produce request of version 9 to 13 without its header, as fragments to send.

    The first fragment is `bytes`. Long batches are passed by reference.

    Args:
        transactional_id: None for a producer without transactions.
        topics: the name and the id (16 bytes) of each topic, and a list with the partition and the
            bytes of each of its batches.

    Returns:
        The fragments; None if a string is too long.
    """
    fragments: list = []
    out = bytearray()
    if transactional_id is None:
        out.append(0)
    elif not _string(out, transactional_id):
        return None
    _number(out, acks, 2)
    _number(out, timeout_ms, 4)
    _unsigned(out, len(topics) + 1)
    for name, topic_id, batches in topics:
        if version >= 13:
            out += topic_id
        elif not _string(out, name):
            return None
        _unsigned(out, len(batches) + 1)
        for partition, records in batches:
            size: cython.longlong = len(records)
            _number(out, partition, 4)
            _unsigned(out, size + 1)
            if size < _COPY_BELOW:
                out += records
            else:
                fragments.append(bytes(out))
                fragments.append(records)
                out = bytearray()
            out.append(0)  # no tagged fields
        out.append(0)
    out.append(0)
    fragments.append(bytes(out))
    return fragments


@cython.cfunc
def _string(out: bytearray, text: object) -> object:
    data: bytes = text.encode()
    if len(data) > _LONGEST:
        return False
    _unsigned(out, len(data) + 1)
    out += data
    return True


@cython.cfunc
def _number(out: bytearray, value: cython.longlong, size: cython.int) -> object:
    if cython.compiled:
        shift: cython.int = 8 * size
        while shift > 0:
            shift -= 8
            out.append((value >> shift) & 0xFF)
    else:
        out += value.to_bytes(size, "big", signed=True)
    return None


@cython.cfunc
def _unsigned(out: bytearray, value: cython.longlong) -> object:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return None


def read_answers(data, position, version):
    """Return the throttle time and the answers in a Produce response of version 9 to 13.

    Args:
        data: the frame of the response.
        position: where the response begins in the frame.

    Returns:
        The throttle time in milliseconds, and a list with an answer for each partition: its topic
        (the name, or from version 13 on the id, 16 bytes), its index, the base offset of the batch,
        and the log append time (-1 with CreateTime). None if a batch was refused, a tagged field is
        set, a length is above 126, or the response is malformed; the general decoder then reads the
        response.
    """
    if cython.compiled:
        buffer = cython.declare(Py_buffer)
        PyObject_GetBuffer(data, cython.address(buffer), PyBUF_SIMPLE)
        try:
            return _read(cython.address(buffer), position, version)
        finally:
            PyBuffer_Release(cython.address(buffer))
    else:
        try:
            return _read_purely(data, position, version)
        except (struct.error, IndexError):
            return None


if cython.compiled:

    @cython.cfunc
    def _read(
        buffer: cython.pointer(Py_buffer), position: cython.Py_ssize_t, version: cython.int
    ) -> object:
        at: cython.pointer(cython.const[cython.uchar]) = (
            cython.cast(cython.pointer(cython.const[cython.uchar]), buffer.buf) + position
        )
        left: int64_t = buffer.len - position
        if left < 1:
            return None
        answers: list = []
        topics: int64_t
        partitions: int64_t
        size: int64_t
        index: int32_t
        topic: object
        # Numbers above 127 have several bytes; a response with them is left to the general decoder.
        topics = at[0]
        if topics > 127 or not topics:
            return None
        at += 1
        left -= 1
        while topics > 1:
            topics -= 1
            size = 16
            if version < 13:
                if left < 1 or at[0] > 127 or not at[0]:
                    return None
                size = at[0] - 1
                at += 1
                left -= 1
            if left < size + 1:
                return None
            if version >= 13:
                topic = cython.cast(cython.p_char, at)[:16]
            else:
                topic = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, at), size, b"replace")
            at += size
            left -= size
            partitions = at[0]
            if partitions > 127 or not partitions:
                return None
            at += 1
            left -= 1
            while partitions > 1:
                partitions -= 1
                if left < _PARTITION_BYTES:
                    return None
                # A partition with an error, refused records, a message or a tagged field is left to
                # the general decoder.
                if aiokq_i16(at + 4) or at[30] > 1 or at[31] or at[32]:
                    return None
                index = aiokq_i32(at)
                answers.append((topic, index, aiokq_i64(at + 6), aiokq_i64(at + 14)))
                at += _PARTITION_BYTES
                left -= _PARTITION_BYTES
            if left < 1 or at[0]:
                return None
            at += 1
            left -= 1
        if left < 5 or at[4]:
            return None
        return aiokq_i32(at), answers

else:

    def _read_purely(data, position, version):
        answers = []
        topics = data[position]
        position += 1
        if not 0 < topics <= 127:
            return None
        for _ in range(topics - 1):
            size = 16
            if version < 13:
                size = data[position] - 1
                position += 1
                if not 0 <= size < 127:
                    return None
            topic = bytes(data[position : position + size])
            if version < 13:
                topic = topic.decode("utf-8", "replace")
            position += size
            partitions = data[position]
            position += 1
            if not 0 < partitions <= 127:
                return None
            for _ in range(partitions - 1):
                index, error, base, time, _, refused, message, tags = _PARTITION.unpack_from(
                    data, position
                )
                if error or refused > 1 or message or tags:
                    return None
                answers.append((topic, index, base, time))
                position += _PARTITION_BYTES
            if data[position]:
                return None
            position += 1
        throttle_ms, tags = _THROTTLE.unpack_from(data, position)
        return None if tags else (throttle_ms, answers)


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
