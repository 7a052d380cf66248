# The C types of spool.py.

from aiokq.fastpath.gateway.spool cimport aiokq_spool


cdef class SpoolWriter:
    cdef aiokq_spool *spool
    cdef long long pid
    cdef object _check(self)
