# The C names of records.h.

from libc.stdint cimport int64_t

cdef extern from "aiokq/fastpath/records.h":
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
