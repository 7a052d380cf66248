# The C names of cleaner.h.

from libc.stdint cimport int64_t, uint64_t

cdef extern from "aiokq/fastpath/broker/cleaner.h":
    ctypedef struct aiokq_slot:
        pass

    ctypedef struct aiokq_map:
        aiokq_slot *slots
        uint64_t used
        uint64_t secret[2]

    int aiokq_map_make(aiokq_map *map, uint64_t count, uint64_t most) noexcept nogil
    void aiokq_map_free(aiokq_map *map) noexcept nogil
    int aiokq_map_put(
        aiokq_map *map, const unsigned char *key, int64_t size, int64_t offset
    ) noexcept nogil
    int64_t aiokq_map_get(
        const aiokq_map *map, const unsigned char *key, int64_t size
    ) noexcept nogil

    ctypedef struct aiokq_indexing:
        Py_ssize_t at
        int64_t latest
        int64_t records

    int aiokq_map_index(
        aiokq_map *map,
        const unsigned char *data,
        Py_ssize_t end,
        int64_t start_offset,
        int flags,
        aiokq_indexing *walk,
    ) noexcept nogil

    ctypedef struct aiokq_keeping:
        const aiokq_map *map
        int64_t latest
        int64_t now
        int64_t horizon
        int64_t upper
        int64_t interval
        const int64_t *producers
        Py_ssize_t producer_count
        unsigned char *out
        Py_ssize_t room
        Py_ssize_t used
        int64_t *notes
        Py_ssize_t note_room
        Py_ssize_t note_count
        Py_ssize_t at
        int64_t position
        int64_t unnoted
        int64_t max_timestamp
        int64_t max_offset
        int64_t read
        int64_t kept
        int64_t keyless
        int64_t batches

    void aiokq_marks_free(aiokq_keeping *keeping) noexcept nogil
    int aiokq_stays_empty(
        const aiokq_keeping *keeping, int64_t producer_id, int64_t last_offset
    ) noexcept nogil
    void aiokq_note(
        aiokq_keeping *keeping, int64_t last_offset, int64_t size, int64_t timestamp
    ) noexcept nogil
    int aiokq_keep(
        aiokq_keeping *keeping, const unsigned char *data, Py_ssize_t end, int flags
    ) noexcept nogil
