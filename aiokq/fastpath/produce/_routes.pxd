# The C types of routes.py, and the C function of it that accumulator.py calls.

# A forward declaration, because accumulators refer to routes, and routes to accumulators.
cdef class Route

from aiokq.fastpath.produce._accumulator cimport Accumulator
from aiokq.fastpath.produce._batch cimport Slot


cdef class Route:
    cdef readonly object topic
    cdef readonly list slots
    cdef readonly int partitions
    cdef readonly tuple available
    cdef readonly list pending
    cdef Accumulator accumulator
    cdef Slot pending_slot
    cdef Slot sticky
    cdef Py_ssize_t sticky_bytes
    cdef dict cache


cdef Slot next_sticky(Accumulator accumulator, Route route)
