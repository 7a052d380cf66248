# The C functions that set the type slots of the awaitables of this unit; see awaiting.h.

cdef extern from *:
    """
    #include "aiokq/fastpath/awaiting.h"
    AIOKQ_AWAITABLE(delivery)
    AIOKQ_AWAITABLE(wait)
    AIOKQ_AWAITABLE(wait_all)
    """
    ctypedef object (*aiokq_step)(object self, int *yielded)
    void aiokq_patch_delivery(object type, aiokq_step step)
    void aiokq_patch_wait(object type, aiokq_step step)
    void aiokq_patch_wait_all(object type, aiokq_step step)
