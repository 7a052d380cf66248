# The C types of shared.py, and the C functions of it that the units call.

from aiokq.fastpath.native cimport aiokq_loop_hook


cdef class LoopGuard:
    cdef object check
    cdef object hook


cdef int look_closer(LoopGuard guard) except? -1


# Inline, because it runs once per record; the uncompiled version is look_closer.
cdef inline int require_loop(LoopGuard guard) except? -1:
    """Raise the error of the guard's check if this is another loop or thread."""
    if <void *>guard.hook == aiokq_loop_hook():
        return 0
    return look_closer(guard)
