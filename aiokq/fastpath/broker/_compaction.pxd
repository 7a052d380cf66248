# The C types of compaction.py.

from aiokq.fastpath.broker.cleaner cimport aiokq_keeping, aiokq_map


cdef class OffsetMap:
    cdef aiokq_map map
    cdef bytes secret
    cdef bint closed
    cdef public long long latest_offset
    cdef object _check_open(self)


cdef class KeptBatches:
    cdef aiokq_keeping keeping
    cdef OffsetMap map
    cdef object block
    cdef bytes note_block
    cdef bytes producers
