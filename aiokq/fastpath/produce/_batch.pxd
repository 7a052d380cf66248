# The C types of batch.py, and the C functions of it that other files of the unit call.

# Forward declarations, because accumulators refer to batches, and batches to accumulators.
cdef class Batch
cdef class Slot

from aiokq.fastpath.produce._accumulator cimport Accumulator


cdef class Batch:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly unsigned int count
    cdef readonly double created
    cdef readonly long long max_timestamp_ms
    cdef readonly Slot slot
    cdef readonly object error
    cdef Accumulator accumulator
    cdef object block
    cdef unsigned char *base
    cdef Py_ssize_t pos
    cdef Py_ssize_t capacity
    cdef Py_ssize_t reserved
    cdef Py_ssize_t wire_size
    cdef long long base_timestamp
    cdef long long base_offset
    cdef long long append_time
    cdef int state
    cdef int codec
    cdef unsigned int observed_count
    cdef Py_ssize_t live
    cdef unsigned long long mark
    cdef unsigned int ordinal
    cdef bytes stamped
    cdef object view
    cdef list targets
    cdef list waiting
    cdef list many
    cdef bytearray observed
    cdef dict wanted


cdef class Slot:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly Batch batch
    cdef public object owner
    cdef Py_ssize_t hint


cdef Batch blank_batch(Accumulator accumulator, object topic, int partition)
cdef Batch failed_batch(Accumulator accumulator, object topic, int partition, object error)
cdef object detach(Batch batch)
cdef object set_block(Batch batch, Py_ssize_t capacity)
cdef object report_bug(Accumulator accumulator, object where, object error)
cdef object refused_by(Batch batch, object where, object error)
cdef object give_up(Batch batch, object where, object error)
cdef object notify_refused(Batch batch)
cdef object report_memory_freed(Accumulator accumulator)
