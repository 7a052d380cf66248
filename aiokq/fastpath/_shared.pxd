# The C types of shared.py, and its C functions for the other parts.

from aiokq.fastpath.native cimport aiokq_loop_hook


cdef class LoopGuard:
    cdef object check
    cdef object hook


cdef int look_closer(LoopGuard guard) except? -1


# Inline, because it runs once per record; the uncompiled one is look_closer itself.
cdef inline int require_loop(LoopGuard guard) except? -1:
    """Raises what the guard's check does, if this is not the place."""
    if <void *>guard.hook == aiokq_loop_hook():
        return 0
    return look_closer(guard)
