# Owns the C names that _core.py uses where it is compiled; what they do stands in _native.h and _cleaner.h.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except PYGEN_ERROR
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    Py_ssize_t Py_REFCNT(object thing) noexcept nogil
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

cdef extern from "_native.h":
    const char *AIOKQ_SOURCE_HASH

    long long aiokq_now_ms() noexcept nogil
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

    ctypedef struct aiokq_record:
        int64_t timestamp_delta
        int64_t offset_delta
        const unsigned char *key
        int64_t key_size
        const unsigned char *value
        int64_t value_size
        const unsigned char *headers
        int64_t header_count
        const unsigned char *end

    const unsigned char *aiokq_parse_header(
        const unsigned char *at,
        const unsigned char *end,
        const unsigned char **name,
        int64_t *name_size,
        const unsigned char **value,
        int64_t *value_size,
    ) noexcept nogil
    int aiokq_parse_record(
        const unsigned char *at, const unsigned char *end, aiokq_record *record
    ) noexcept nogil
    ctypedef struct aiokq_request:
        const unsigned char *at
        const unsigned char *end
        bint flexible
        bint bad
        int parts

    const unsigned char *aiokq_pass(aiokq_request *request, int64_t size) noexcept nogil
    int32_t aiokq_int16(aiokq_request *request) noexcept nogil
    int32_t aiokq_int32(aiokq_request *request) noexcept nogil
    int64_t aiokq_length(aiokq_request *request, int plain) noexcept nogil
    int64_t aiokq_elements(aiokq_request *request) noexcept nogil
    void aiokq_no_tags(aiokq_request *request) noexcept nogil
    bint aiokq_ordinary(const unsigned char *at, int64_t size, int newest_codec) noexcept nogil
    uint32_t aiokq_murmur2(const unsigned char *data, Py_ssize_t length) noexcept nogil
    void aiokq_crc32c_setup() noexcept nogil
    uint32_t aiokq_crc32c(uint32_t crc, const unsigned char *at, Py_ssize_t length) noexcept nogil

    ctypedef object (*aiokq_step)(object self, int *yielded)
    void aiokq_patch_delivery(object type, aiokq_step step)
    void aiokq_patch_wait(object type, aiokq_step step)
    void aiokq_patch_wait_all(object type, aiokq_step step)
    void aiokq_patch_stream(object type, aiokq_step step)
    void aiokq_patch_stream_wait(object type, aiokq_step step)

    const int64_t AIOKQ_TOP_OFFSET
    const uint64_t AIOKQ_GOLDEN
    const uint64_t AIOKQ_MIX_1
    const uint64_t AIOKQ_MIX_2

cdef extern from "_cleaner.h":
    ctypedef struct aiokq_slot:
        pass

    ctypedef struct aiokq_map:
        aiokq_slot *slots
        uint64_t used
        uint64_t secret[2]

    int aiokq_map_make(aiokq_map *map, uint64_t count, uint64_t most) noexcept nogil
    void aiokq_map_free(aiokq_map *map) noexcept nogil
    int aiokq_map_put(
        aiokq_map *map, const unsigned char *key, int64_t size, int64_t offset
    ) noexcept nogil
    int64_t aiokq_map_get(
        const aiokq_map *map, const unsigned char *key, int64_t size
    ) noexcept nogil

    ctypedef struct aiokq_indexing:
        Py_ssize_t at
        int64_t latest
        int64_t records

    int aiokq_map_index(
        aiokq_map *map,
        const unsigned char *data,
        Py_ssize_t end,
        int64_t start_offset,
        int flags,
        aiokq_indexing *walk,
    ) noexcept nogil

    ctypedef struct aiokq_keeping:
        const aiokq_map *map
        int64_t latest
        int64_t now
        int64_t horizon
        int64_t upper
        int64_t interval
        const int64_t *producers
        Py_ssize_t producer_count
        unsigned char *out
        Py_ssize_t room
        Py_ssize_t used
        int64_t *notes
        Py_ssize_t note_room
        Py_ssize_t note_count
        Py_ssize_t at
        int64_t position
        int64_t unnoted
        int64_t max_timestamp
        int64_t max_offset
        int64_t read
        int64_t kept
        int64_t keyless
        int64_t batches

    void aiokq_marks_free(aiokq_keeping *keeping) noexcept nogil
    int aiokq_stays_empty(
        const aiokq_keeping *keeping, int64_t producer_id, int64_t last_offset
    ) noexcept nogil
    void aiokq_note(
        aiokq_keeping *keeping, int64_t last_offset, int64_t size, int64_t timestamp
    ) noexcept nogil
    int aiokq_keep(
        aiokq_keeping *keeping, const unsigned char *data, Py_ssize_t end, int flags
    ) noexcept nogil

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
