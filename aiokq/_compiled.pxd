# Owns the C types of _core.py's classes where it is compiled; uncompiled, their __slots__ stand in.

from aiokq._native cimport aiokq_keeping, aiokq_map, aiokq_record, uint64_t


cdef class LoopGuard:
    cdef object check
    cdef object hook


cdef class RecordMetadata:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly long long timestamp_ms


cdef class Delivery:
    cdef Batch batch
    cdef unsigned int index
    cdef long long timestamp


cdef class _Wait:
    cdef Delivery delivery
    cdef object loop
    cdef object callback
    cdef object context
    cdef object message
    cdef int state
    cdef bint whole
    cdef public bint _asyncio_future_blocking


cdef class _Wakes:
    cdef object loop
    cdef list waiting
    cdef Py_ssize_t next


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
    cdef _Part time_bits
    cdef _Part times


cdef class _WaitAll:
    cdef Deliveries deliveries
    cdef Py_ssize_t at
    cdef _Wait wait
    cdef bint joined


cdef class _Part:
    cdef object data
    cdef Py_buffer *buffer
    cdef unsigned char *base
    cdef Py_ssize_t size


cdef class RecordColumns:
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t largest
    cdef Py_ssize_t largest_size
    cdef Py_ssize_t top_partition
    cdef _Part key_bits
    cdef _Part key_offsets
    cdef _Part keys
    cdef _Part value_bits
    cdef _Part value_offsets
    cdef _Part values
    cdef _Part row_bits
    cdef _Part row_offsets
    cdef _Part name_offsets
    cdef _Part names
    cdef _Part text_bits
    cdef _Part text_offsets
    cdef _Part texts
    cdef _Part time_bits
    cdef _Part times
    cdef _Part partition_bits
    cdef _Part partitions


cdef class Accumulator:
    cdef readonly Py_ssize_t batch_size
    cdef readonly Py_ssize_t buffer_memory
    cdef readonly Py_ssize_t max_record_bytes
    cdef readonly bint ignore_keys
    cdef readonly bint closed
    cdef public object on_unknown_topic
    cdef public object on_room
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


cdef class Record:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly int leader_epoch
    cdef readonly int timestamp_type
    cdef readonly long long offset
    cdef readonly long long timestamp_ms
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers


cdef class Cursor:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly long long position
    cdef readonly Py_ssize_t handed
    cdef object source
    cdef object codecs
    cdef object error
    cdef object inner
    cdef bytes sub
    cdef list aborted
    cdef set aborted_ids
    cdef Py_buffer *buffer
    cdef const unsigned char *base
    cdef const unsigned char *record
    cdef const unsigned char *record_end
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef Py_ssize_t sub_at
    cdef Py_ssize_t partial
    cdef Py_ssize_t max_batch_bytes
    cdef Py_ssize_t opened_bytes
    cdef Py_ssize_t remaining
    cdef long long stop
    cdef long long last_offset
    cdef long long next_offset
    cdef long long base_offset
    cdef long long base_timestamp
    cdef long long last_delta
    cdef int epoch
    cdef int last_epoch
    cdef int time_type
    cdef bint bounded
    cdef bint check_crcs
    cdef bint deferred
    cdef bint ended
    cdef bint opened
    cdef bint untimed


cdef class _Buffer:
    cdef object block
    cdef unsigned char *base
    cdef Py_ssize_t capacity


cdef class Columns:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly tuple names
    cdef readonly Py_ssize_t count
    cdef readonly object key
    cdef readonly object value
    cdef readonly object offset
    cdef readonly object timestamp
    cdef readonly object timestamp_type
    cdef readonly object headers


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


cdef class RecordStream:
    cdef readonly Cursor cursor
    cdef readonly bint in_hand
    cdef readonly object source
    cdef LoopGuard guard
    cdef bint busy


cdef class _StreamWait:
    cdef RecordStream stream
    cdef object inner
