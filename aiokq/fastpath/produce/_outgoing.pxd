# The C types of outgoing.py.

from aiokq.fastpath.produce._accumulator cimport Accumulator
from aiokq.fastpath.produce._deliveries cimport Deliveries


cdef class Outgoing:
    cdef readonly object topic
    cdef readonly object value
    cdef readonly object key
    cdef readonly object headers
    cdef readonly object partition
    cdef readonly object timestamp_ms


cdef class HandlerResults:
    cdef Accumulator accumulator
    cdef bint direct
    cdef list held
    cdef readonly Py_ssize_t held_bytes
    cdef list items
    cdef Deliveries many
