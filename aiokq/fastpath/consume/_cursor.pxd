# The C types of cursor.py, and the C functions of it that other files of the unit call.

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


cdef object next_record(Cursor cursor)
cdef int open_next(Cursor cursor) except -1
cdef object leave_batch(Cursor cursor)
cdef object move_up_to(Cursor cursor, long long offset)
cdef object end_cursor(Cursor cursor)
cdef object raise_corrupt(Cursor cursor, object what, object cause)
