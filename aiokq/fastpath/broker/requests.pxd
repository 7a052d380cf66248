# The C names of requests.h.

from libc.stdint cimport int32_t, int64_t

cdef extern from "aiokq/fastpath/broker/requests.h":
    const int AIOKQ_SPECIAL
    const int AIOKQ_TRANSACTIONAL

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
    bint aiokq_ordinary(
        const unsigned char *at, int64_t size, int newest_codec, int special
    ) noexcept nogil
