# The C functions that set the type slots of the awaitables of this unit; see awaiting.h.

cdef extern from *:
    """
    #include "aiokq/fastpath/awaiting.h"
    AIOKQ_AWAITABLE(stream)
    AIOKQ_AWAITABLE(stream_wait)
    """
    ctypedef object (*aiokq_step)(object self, int *yielded)
    void aiokq_patch_stream(object type, aiokq_step step)
    void aiokq_patch_stream_wait(object type, aiokq_step step)
