# The C types of deliveries.py, and the C functions of it that other files of the unit call.

# Forward declarations, because batches refer to deliveries, and deliveries to batches.
cdef class Delivery
cdef class Wait
cdef class Deliveries

from aiokq.fastpath.produce._batch cimport Batch
from aiokq.fastpath.produce._columns cimport Part


cdef class RecordMetadata:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly long long timestamp_ms


cdef class Delivery:
    cdef Batch batch
    cdef unsigned int index
    cdef long long timestamp


cdef class Wait:
    cdef Delivery delivery
    cdef object loop
    cdef object callback
    cdef object context
    cdef object message
    cdef int state
    cdef bint whole
    cdef public bint _asyncio_future_blocking


cdef class Wakes:
    cdef object loop
    cdef list waiting
    cdef Py_ssize_t next


cdef class Deliveries:
    cdef list batches
    cdef dict explicit
    cdef Py_ssize_t filled
    cdef Py_ssize_t capacity
    cdef Py_ssize_t awaited
    cdef Py_ssize_t counted
    cdef dict counts
    cdef unsigned long long mark
    cdef long long timestamp
    cdef object ordinal_block
    cdef object index_block
    cdef unsigned int *ordinals
    cdef unsigned int *indexes
    cdef Part time_bits
    cdef Part times


cdef class _WaitAll:
    cdef Deliveries deliveries
    cdef Py_ssize_t at
    cdef Wait wait
    cdef bint joined


cdef Delivery new_delivery(Batch batch, unsigned int index, long long timestamp)
cdef Batch settle(Delivery delivery)
cdef object observe(Batch batch, Py_ssize_t index)
cdef object rejoin(Wait wait)
cdef Deliveries new_deliveries(Py_ssize_t length, long long timestamp)
cdef object enlarge(Deliveries many)
cdef Delivery delivery_at(Deliveries many, Py_ssize_t at)
cdef dict records_by_batch(Deliveries many)
cdef object forget_counts(Deliveries many)
cdef object observe_many(Deliveries many, Batch batch)
