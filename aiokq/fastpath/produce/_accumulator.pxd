# The C types of accumulator.py.

# A forward declaration, because batches and routes refer to accumulators, and these to routes.
cdef class Accumulator

from aiokq.fastpath._shared cimport LoopGuard
from aiokq.fastpath.native cimport uint64_t
from aiokq.fastpath.produce._routes cimport Route


cdef class Accumulator:
    cdef readonly Py_ssize_t batch_size
    cdef readonly Py_ssize_t buffer_memory
    cdef readonly Py_ssize_t max_record_bytes
    cdef readonly bint ignore_keys
    cdef readonly bint closed
    cdef readonly object refusal
    cdef public object on_unknown_topic
    cdef public object on_memory_freed
    cdef public object on_refused
    cdef public object on_bug
    cdef public object choose
    cdef public object loop
    cdef readonly LoopGuard guard
    cdef object clock
    cdef dict routes
    cdef object last_topic
    cdef Route last_route
    cdef Py_ssize_t used
    cdef Py_ssize_t queued
    cdef Py_ssize_t block_size
    cdef Py_ssize_t pool_limit
    cdef list pool
    cdef uint64_t random
