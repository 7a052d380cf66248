# The C names that several parts use; native.h documents them.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    Py_ssize_t Py_REFCNT(object thing) noexcept nogil
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

cdef extern from "aiokq/fastpath/native.h":
    const char *AIOKQ_SOURCE_HASH

    long long aiokq_now_ms() noexcept nogil
    double aiokq_monotonic() noexcept nogil
    void *aiokq_loop_hook() noexcept
    int aiokq_varint_size(int64_t value) noexcept nogil
    unsigned char *aiokq_put_varint(unsigned char *at, int64_t value) noexcept nogil
    const unsigned char *aiokq_get_varint(
        const unsigned char *at, const unsigned char *end, int most, int64_t *value
    ) noexcept nogil
    uint32_t aiokq_u32(const unsigned char *at) noexcept nogil
    int32_t aiokq_i32(const unsigned char *at) noexcept nogil
    int16_t aiokq_i16(const unsigned char *at) noexcept nogil
    int64_t aiokq_i64(const unsigned char *at) noexcept nogil
    int64_t aiokq_add(int64_t a, int64_t b) noexcept nogil
    int64_t aiokq_micros(int64_t ms) noexcept nogil
    int aiokq_is_ascii(const unsigned char *at, int64_t size) noexcept nogil

    uint32_t aiokq_murmur2(const unsigned char *data, Py_ssize_t length) noexcept nogil

    const int64_t AIOKQ_TOP_OFFSET
    const uint64_t AIOKQ_GOLDEN
    const uint64_t AIOKQ_MIX_1
    const uint64_t AIOKQ_MIX_2

# Size of the header of a v2 batch, and position of the first byte that its checksum covers; pure.py
# has the same numbers.
cdef enum:
    HEADER_SIZE = 61
    CRC_COVERS = 21
