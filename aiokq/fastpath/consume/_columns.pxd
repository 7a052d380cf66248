# The C types of columns.py, and the C function of it that cursor.py calls.

from aiokq.fastpath.consume._cursor cimport Cursor


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


cdef class _Buffer:
    cdef object block
    cdef unsigned char *base
    cdef Py_ssize_t capacity


cdef Columns columns_of(Cursor cursor, object names, object max_bytes)
