# The C names of intake.h.

from libc.stdint cimport int64_t, uint32_t

from aiokq.fastpath.gateway.pool cimport aiokq_pool
from aiokq.fastpath.gateway.spool cimport aiokq_spool

cdef extern from "aiokq/fastpath/gateway/intake.h" nogil:
    ctypedef struct aiokq_intake_counts:
        int64_t received
        int64_t received_bytes
        int64_t *reasons
        int64_t connections
        int64_t accepted
        int64_t refused
        int64_t idle_closed
        int64_t partial_closed
        int64_t displaced
        int64_t blocked_ms
        int running
        int error

    ctypedef struct aiokq_intake:
        aiokq_pool *pool
        aiokq_spool *spool
        int fd
        int transport
        int64_t limit
        int block
        int checks_users
        uint32_t *users
        int64_t user_count
        int64_t max_connections
        int64_t idle_ms
        int64_t partial_ms
        int64_t idle_when_full_ms
        int started
        aiokq_intake_counts counts

    int aiokq_watch_forks() noexcept
    int aiokq_intake_start(aiokq_intake *intake) noexcept
    int aiokq_intake_change(aiokq_intake *intake, const aiokq_intake *using) noexcept nogil
    void aiokq_intake_stop(aiokq_intake *intake, int64_t drain_ms) noexcept
