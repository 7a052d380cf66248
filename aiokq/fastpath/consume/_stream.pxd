# The C types of stream.py.

from aiokq.fastpath._shared cimport LoopGuard
from aiokq.fastpath.consume._cursor cimport Cursor


cdef class RecordStream:
    cdef readonly Cursor cursor
    cdef readonly bint in_hand
    cdef readonly object source
    cdef LoopGuard guard
    cdef bint busy


cdef class _StreamWait:
    cdef RecordStream stream
    cdef object inner
