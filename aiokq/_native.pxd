# Owns the C names that _core.py uses where it is compiled; what they do stands in _native.h.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    Py_ssize_t Py_REFCNT(object thing) noexcept nogil
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

cdef extern from "_native.h":
    const char *AIOKQ_SOURCE_HASH

    long long aiokq_now_ms() noexcept nogil
    int aiokq_varint_size(int64_t value) noexcept nogil
    unsigned char *aiokq_put_varint(unsigned char *at, int64_t value) noexcept nogil
    const unsigned char *aiokq_get_varint(
        const unsigned char *at, const unsigned char *end, int most, int64_t *value
    ) noexcept nogil
    uint32_t aiokq_u32(const unsigned char *at) noexcept nogil
    uint32_t aiokq_murmur2(const unsigned char *data, Py_ssize_t length) noexcept nogil
    void aiokq_crc32c_setup() noexcept nogil
    uint32_t aiokq_crc32c(uint32_t crc, const unsigned char *at, Py_ssize_t length) noexcept nogil

    ctypedef object (*aiokq_step)(object self, int *yielded)
    void aiokq_patch_delivery(object type, aiokq_step step)
    void aiokq_patch_wait(object type, aiokq_step step)
    void aiokq_patch_wait_all(object type, aiokq_step step)
    void aiokq_patch_stream(object type, aiokq_step step)
    void aiokq_patch_stream_wait(object type, aiokq_step step)

    const uint64_t AIOKQ_GOLDEN
    const uint64_t AIOKQ_MIX_1
    const uint64_t AIOKQ_MIX_2

# What has become of a batch.
cdef enum:
    OPEN
    SEALED
    DELIVERED
    FAILED
    MOVED

# What a wait is.
cdef enum:
    WAIT_NEW
    WAIT_SUSPENDED
    WAIT_WOKEN
    WAIT_CANCELLED
    WAIT_LEFT
    WAIT_CALLBACK

# Bytes: see the same names in _core.py.
cdef enum:
    HEADER_SIZE = 61
    CRC_COVERS = 21
    MIN_CHUNK = 1024
    RECORD_OVERHEAD = 36
    NUMBERS = 20
