# The C types of accumulator.py, and the C functions of it that outgoing.py and building.py call.

# A forward declaration, because batches and routes refer to accumulators, and accumulators refer to
# routes.
cdef class Accumulator

from aiokq.fastpath._shared cimport LoopGuard
from aiokq.fastpath.native cimport uint64_t
from aiokq.fastpath.produce._batch cimport Batch, Slot
from aiokq.fastpath.produce._columns cimport RecordColumns
from aiokq.fastpath.produce._deliveries cimport Deliveries, Delivery
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


cdef long long now_ms(Accumulator accumulator) except? -1
cdef object append_noted(
    Accumulator accumulator,
    object topic,
    object value,
    object key,
    object partition,
    long long timestamp,
    object headers,
    Deliveries many,
)
cdef object note_delivery(Deliveries many, Delivery delivery)
cdef Batch put_apart(
    Accumulator accumulator,
    Slot slot,
    object value,
    object key,
    long long timestamp,
    object headers,
)
cdef Batch put_row_apart(
    Accumulator accumulator, Slot slot, RecordColumns columns, Py_ssize_t n, long long now
)
