# The C types of pool.py.

from libc.stdint cimport int64_t

from aiokq.fastpath.gateway.pool cimport aiokq_pool, aiokq_segment, aiokq_slot


cdef class Block:
    cdef aiokq_segment *segment
    cdef unsigned char *base
    cdef Py_ssize_t size


cdef class Taken:
    cdef aiokq_segment *segment
    cdef int64_t first
    cdef int64_t end
    cdef readonly Py_ssize_t slot
    cdef object _check(self)
    cdef object _row(self, object index)
    cdef Block _block(self, bint keys)
    cdef object _column(self, bint keys, bint nulls)
    cdef object _header_column(
        self, object name, int64_t earliest, int64_t latest, int64_t count, int64_t size
    )


cdef class Pool:
    cdef aiokq_pool *pool
    cdef long long pid
    cdef aiokq_slot *found
    cdef object _check(self)
    cdef object _check_open(self)
    cdef object _find(self, object number)
    cdef object _find_unresolved(self, object topic)
    cdef object _limit(self, aiokq_slot *slot, object limits)
