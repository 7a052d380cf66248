# The C names of checksums.h.

from libc.stdint cimport uint32_t

cdef extern from "aiokq/fastpath/checksums.h":
    void aiokq_crc32c_setup() noexcept nogil
    uint32_t aiokq_crc32c(uint32_t crc, const unsigned char *at, Py_ssize_t length) noexcept nogil
