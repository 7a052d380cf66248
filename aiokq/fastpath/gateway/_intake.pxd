# The C types of intake.py.

from aiokq.fastpath.gateway._pool cimport Pool
from aiokq.fastpath.gateway.intake cimport aiokq_intake


cdef class Intake:
    cdef aiokq_intake *intake
    cdef Pool pool
    cdef long long pid
    cdef bint started
