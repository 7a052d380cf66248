"""read_produced: reads and checks an ordinary Produce request without a message object.

Tests: tests/unit/fastpath/test_produced.py.
"""

# Hot path, measured by benchmarks/raw_load.py.

from __future__ import annotations

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.broker.requests import (
        AIOKQ_SPECIAL,
        AIOKQ_TRANSACTIONAL,
        aiokq_elements,
        aiokq_int16,
        aiokq_int32,
        aiokq_length,
        aiokq_no_tags,
        aiokq_ordinary,
        aiokq_pass,
        aiokq_request,
    )
    from cython.cimports.aiokq.fastpath.checksums import aiokq_crc32c_setup
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
        aiokq_is_ascii,
        aiokq_u32,
        int32_t,
        int64_t,
    )
else:
    from aiokq.fastpath.broker import pure_produced

__all__ = ["read_produced"]


def read_produced(frame):
    """Return the checked batches of an ordinary Produce request; None for any other request.

    An ordinary request has version 3 to 13, acks from -1 to 1, ASCII strings, no tagged fields, at
    most 1024 topics and partitions together, and for each partition one batch of magic 2 that a
    broker can store unchanged. A batch may be transactional if the request has a transactional id.
    If the result is None, the caller decodes the request in the general way, and finds the error if
    there is one.

    Args:
        frame: a Produce request with its header.

    Returns:
        Version, correlation id, transactional id or None, acks, and a list of topics. A topic is
        its name (from version 13 on its id, 16 bytes) and a list of partitions. A partition is its
        index, the bytes of its batch (a view of `frame`), and the 13 fields of the batch header.
    """
    if cython.compiled:
        buffer = cython.declare(Py_buffer)
        PyObject_GetBuffer(frame, cython.address(buffer), PyBUF_SIMPLE)
        try:
            return _read_produced(frame, cython.address(buffer))
        finally:
            PyBuffer_Release(cython.address(buffer))
    else:
        return pure_produced.read(frame)


if cython.compiled:

    @cython.cfunc
    def _read_produced(frame: object, buffer: cython.pointer(Py_buffer)) -> object:
        request = cython.declare(aiokq_request)
        r: cython.pointer(aiokq_request) = cython.address(request)
        start: cython.pointer(cython.const[cython.uchar]) = cython.cast(
            cython.pointer(cython.const[cython.uchar]), buffer.buf
        )
        text: cython.pointer(cython.const[cython.uchar])
        size: int64_t
        r.at, r.end, r.flexible, r.bad, r.parts = start, start + buffer.len, False, False, 0
        api: cython.int = aiokq_int16(r)
        version: cython.int = aiokq_int16(r)
        correlation_id: cython.int = aiokq_int32(r)
        size = aiokq_int16(r)
        if r.bad or api != 0 or version < 3 or version > 13 or size < -1:
            return None
        if size > 0:
            text = aiokq_pass(r, size)
            if r.bad or not aiokq_is_ascii(text, size):
                return None
        r.flexible = version >= 9
        aiokq_no_tags(r)
        transactional_id: object = None
        special: cython.int = AIOKQ_SPECIAL | AIOKQ_TRANSACTIONAL
        size = aiokq_length(r, 2)
        if size >= 0:
            special = AIOKQ_SPECIAL
            text = aiokq_pass(r, size)
            if r.bad or not aiokq_is_ascii(text, size):
                return None
            transactional_id = PyUnicode_DecodeUTF8(
                cython.cast(cython.p_char, text), size, cython.NULL
            )
        elif size != -1:
            return None
        acks: cython.int = aiokq_int16(r)
        aiokq_int32(r)  # skip the timeout
        topics_left: int64_t = aiokq_elements(r)
        if r.bad or acks < -1 or acks > 1:
            return None
        topics: list = []
        topic: object
        while topics_left > 0:
            topics_left -= 1
            size = 16 if version >= 13 else aiokq_length(r, 2)
            text = aiokq_pass(r, size)
            if r.bad:
                return None
            if version >= 13:
                topic = cython.cast(cython.p_char, text)[:16]
            elif aiokq_is_ascii(text, size):
                topic = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, text), size, cython.NULL)
            else:
                return None
            partitions: object = _read_partitions(frame, start, r, version, special)
            if partitions is None:
                return None
            aiokq_no_tags(r)
            topics.append((topic, partitions))
        aiokq_no_tags(r)
        if r.bad:
            return None
        return version, correlation_id, transactional_id, acks, topics

    @cython.cfunc
    def _read_partitions(
        frame: object,
        start: cython.pointer(cython.const[cython.uchar]),
        r: cython.pointer(aiokq_request),
        version: cython.int,
        special: cython.int,
    ) -> object:
        batch: cython.pointer(cython.const[cython.uchar])
        newest_codec: cython.int = 4 if version >= 7 else 3  # 4 is zstd, allowed since version 7
        left: int64_t = aiokq_elements(r)
        if r.bad:
            return None
        partitions: list = []
        while left > 0:
            left -= 1
            index: int32_t = aiokq_int32(r)
            size: int64_t = aiokq_length(r, 4)
            batch = aiokq_pass(r, size)
            if r.bad or not aiokq_ordinary(batch, size, newest_codec, special):
                return None
            aiokq_no_tags(r)
            header = (
                0,
                aiokq_i32(batch + 8),
                aiokq_i32(batch + 12),
                2,
                aiokq_u32(batch + 17),
                aiokq_i16(batch + 21),
                aiokq_i32(batch + 23),
                aiokq_i64(batch + 27),
                aiokq_i64(batch + 35),
                aiokq_i64(batch + 43),
                aiokq_i16(batch + 51),
                aiokq_i32(batch + 53),
                aiokq_i32(batch + 57),
            )
            partitions.append((index, frame[batch - start : batch - start + size], header))
        return partitions


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    aiokq_crc32c_setup()
