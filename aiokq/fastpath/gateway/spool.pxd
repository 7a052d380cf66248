# The C names of spool.h.

from libc.stdint cimport int64_t, uint32_t

cdef extern from "aiokq/fastpath/gateway/spool.h" nogil:
    const int AIOKQ_SPOOL_FRAME
    const int AIOKQ_SPOOL_FRAME_BYTES

    ctypedef uint32_t (*aiokq_checksum)(uint32_t, const unsigned char *, size_t) noexcept

    ctypedef struct aiokq_piece:
        const unsigned char *at
        int64_t size
        int64_t messages

    ctypedef struct aiokq_sealed:
        int64_t base
        int64_t end
        int64_t sequence

    ctypedef struct aiokq_spool:
        int64_t max_bytes
        int64_t segment_bytes
        int sync
        int wake_fd
        int64_t sequence
        int64_t stored
        int error
        int sync_error
        int64_t appended
        int64_t appended_bytes
        int64_t failures

    int aiokq_spool_make(
        aiokq_spool *spool, const char *directory, aiokq_checksum checksum
    ) noexcept
    void aiokq_spool_lock(aiokq_spool *spool) noexcept
    void aiokq_spool_unlock(aiokq_spool *spool) noexcept
    void aiokq_spool_close(aiokq_spool *spool) noexcept
    void aiokq_spool_free(aiokq_spool *spool) noexcept
    int aiokq_spool_append(
        aiokq_spool *spool, const aiokq_piece *pieces, int count, int64_t arrival, int force
    ) noexcept
    int aiokq_spool_wait(aiokq_spool *spool, int64_t size, int64_t frames) noexcept
    void aiokq_spool_interrupt(aiokq_spool *spool) noexcept
    void aiokq_spool_freed(aiokq_spool *spool, int64_t size) noexcept
    aiokq_sealed *aiokq_spool_progress(
        aiokq_spool *spool, int *count, aiokq_sealed *progress
    ) noexcept
    int aiokq_spool_flush(aiokq_spool *spool) noexcept
    int64_t aiokq_spool_frame(
        const unsigned char *at, int64_t size, aiokq_checksum checksum
    ) noexcept
    int64_t aiokq_spool_mark(
        unsigned char *done, int64_t size, int64_t base, const int64_t *sequences, int64_t count
    ) noexcept
