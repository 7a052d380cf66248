# The C types of intake.py.

from aiokq.fastpath.gateway._pool cimport Pool
from aiokq.fastpath.gateway._spool cimport SpoolWriter
from aiokq.fastpath.gateway.intake cimport aiokq_intake


cdef class Intake:
    cdef aiokq_intake *intake
    cdef Pool pool
    cdef SpoolWriter spool
    cdef long long pid
    cdef bint started
