# The C types of columns.py, and the C functions of it that other files of the unit call.

from aiokq.fastpath.native cimport int32_t, int64_t, memcpy


cdef class Part:
    cdef object data
    cdef Py_buffer *buffer
    cdef unsigned char *base
    cdef Py_ssize_t size


cdef class RecordColumns:
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t largest
    cdef Py_ssize_t largest_size
    cdef Py_ssize_t top_partition
    cdef Part key_bits
    cdef Part key_offsets
    cdef Part keys
    cdef Part value_bits
    cdef Part value_offsets
    cdef Part values
    cdef Part row_bits
    cdef Part row_offsets
    cdef Part name_offsets
    cdef Part names
    cdef Part text_bits
    cdef Part text_offsets
    cdef Part texts
    cdef Part time_bits
    cdef Part times
    cdef Part partition_bits
    cdef Part partitions


cdef Part row_numbers(object rows)
cdef Py_ssize_t row_headers_size(RecordColumns columns, Py_ssize_t n) noexcept


# Inline, because they run once per record; columns.py has the uncompiled versions.
cdef inline bint bit(Part part, Py_ssize_t n) noexcept:
    """Return whether row `n` has a value; without validity bits, every row has one."""
    return part is None or (part.base[n >> 3] >> (n & 7)) & 1


cdef inline Py_ssize_t int32_at(Part part, Py_ssize_t n) noexcept:
    cdef int32_t value
    memcpy(&value, part.base + 4 * n, 4)
    return value


cdef inline long long int64_at(Part part, Py_ssize_t n) noexcept:
    cdef int64_t value
    memcpy(&value, part.base + 8 * n, 8)
    return value
