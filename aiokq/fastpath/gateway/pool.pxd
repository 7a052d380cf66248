# The C names of parse.h and pool.h.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from "aiokq/fastpath/gateway/pool.h" nogil:
    const int AIOKQ_MESSAGE_OVERHEAD
    const int AIOKQ_TOPIC_OVERHEAD
    const int AIOKQ_TOPIC_BYTES
    const int AIOKQ_SAMPLES
    enum: AIOKQ_FRESH
    enum: AIOKQ_READY
    const int AIOKQ_TRANSPORTS
    const int AIOKQ_BAD_TOPIC
    const int AIOKQ_DISCARD
    const int AIOKQ_WAIT
    const int64_t AIOKQ_NEVER

    ctypedef struct aiokq_row:
        int64_t timestamp
        int64_t arrival
        int64_t sequence
        uint32_t value_end
        uint32_t key_end
        uint32_t partition_key
        uint32_t keyed

    ctypedef struct aiokq_segment:
        unsigned char *keys
        unsigned char *data

    ctypedef struct aiokq_slot:
        aiokq_slot *after
        aiokq_segment *head
        unsigned char *topic
        int32_t topic_size
        int32_t number
        int registered
        int known
        int64_t held
        int64_t held_bytes
        int64_t received
        int64_t too_long
        int64_t rate_limited
        int64_t no_memory
        int64_t earliest
        int64_t latest

    ctypedef struct aiokq_slots:
        aiokq_slot *first

    ctypedef struct aiokq_fresh:
        int64_t held
        int32_t size
        unsigned char *topic

    ctypedef struct aiokq_sample:
        int64_t arrival
        int32_t size

    ctypedef struct aiokq_ring:
        unsigned char *data
        aiokq_sample *kept
        int count
        int oldest

    ctypedef struct aiokq_refused:
        aiokq_refused *next
        int64_t sequence
        int64_t timestamp
        int64_t arrival
        int64_t value_size
        int32_t topic_size
        int32_t key_size
        uint32_t partition_key
        int keyed
        int reason
        int transport
        int64_t charge
        unsigned char *data

    ctypedef struct aiokq_pool:
        int closed
        int starved
        int spooled
        int fixed_clock
        int64_t fixed_mono
        int64_t fixed_wall
        int64_t max_bytes
        int64_t topic_share
        int64_t sample_bytes
        int64_t max_names
        int64_t refused_bytes
        uint32_t refused_reasons
        uint32_t refused_whole
        int64_t refused_prefix
        int64_t refused_rate
        int64_t whole_rate
        int64_t whole_next
        uint64_t seed
        aiokq_slot **slots
        int32_t slot_count
        int32_t free_count
        aiokq_slots ready
        aiokq_slots fresh
        int64_t used
        int64_t partial
        int64_t held
        int64_t taken
        int64_t unresolved
        int64_t names
        int64_t received
        int64_t received_bytes
        int64_t replayed
        int64_t refused_lost
        int64_t refused_used
        int64_t *discarded
        int versions
        int *version
        int64_t *version_count
        aiokq_ring bad_topics
        aiokq_refused *refused_first
        aiokq_refused *refused_last
        int64_t *finished
        int64_t finished_count
        int64_t finished_room

    ctypedef struct aiokq_survey:
        int64_t empty_keys
        int64_t empty_values
        int64_t keyed
        int64_t replaced
        int64_t text_bytes
        int64_t oldest
        int64_t earliest
        int64_t latest

    aiokq_row *aiokq_row_at(const aiokq_segment *segment, int64_t n) noexcept
    uint32_t aiokq_value_start(const aiokq_segment *segment, int64_t n) noexcept
    uint32_t aiokq_key_start(const aiokq_segment *segment, int64_t n) noexcept
    int64_t aiokq_span(const aiokq_segment *segment, int64_t first, int64_t end) noexcept
    aiokq_segment *aiokq_segment_select(
        const aiokq_segment *segment, int64_t first, const int64_t *rows, int64_t count
    ) noexcept
    void aiokq_segment_hold(aiokq_segment *segment) noexcept
    void aiokq_segment_release(aiokq_segment *segment) noexcept

    int aiokq_pool_make(aiokq_pool *pool, int64_t most, int wake_fd, uint64_t seed) noexcept
    void aiokq_pool_now(const aiokq_pool *pool, int64_t *mono, int64_t *wall) noexcept
    void aiokq_pool_lock(aiokq_pool *pool) noexcept
    void aiokq_pool_unlock(aiokq_pool *pool) noexcept
    void aiokq_pool_clear(aiokq_pool *pool) noexcept
    void aiokq_pool_free(aiokq_pool *pool) noexcept
    void aiokq_memory_freed(aiokq_pool *pool) noexcept
    void aiokq_rest_if_empty(aiokq_pool *pool, int64_t held) noexcept
    void aiokq_press(aiokq_pool *pool) noexcept
    void aiokq_press_if_full(aiokq_pool *pool) noexcept
    int aiokq_take_fresh(aiokq_pool *pool, aiokq_fresh *out, int64_t room) noexcept
    uint32_t aiokq_topic_hash(uint64_t seed, const unsigned char *at, int32_t size) noexcept
    aiokq_slot *aiokq_find(
        const aiokq_pool *pool, uint32_t hash, const unsigned char *topic, int32_t size
    ) noexcept
    aiokq_slot *aiokq_slot_new(
        aiokq_pool *pool, uint32_t hash, const unsigned char *topic, int32_t size
    ) noexcept
    aiokq_slot *aiokq_slot_of(const aiokq_pool *pool, int64_t number) noexcept
    void aiokq_slot_free(aiokq_pool *pool, aiokq_slot *slot) noexcept
    void aiokq_table_remove(aiokq_pool *pool, aiokq_slot *slot) noexcept
    void aiokq_mark_due(aiokq_pool *pool, aiokq_slot *slot, int64_t count) noexcept
    void aiokq_limit(aiokq_pool *pool, aiokq_slot *slot, const int64_t *limits) noexcept
    void aiokq_resolve(aiokq_pool *pool, aiokq_slot *slot) noexcept
    aiokq_refused *aiokq_take_refused(aiokq_pool *pool) noexcept
    void aiokq_end_unresolved(aiokq_pool *pool, aiokq_slot *slot) noexcept
    void aiokq_sample_topic(
        aiokq_pool *pool, const unsigned char *topic, int64_t size, int64_t wall
    ) noexcept
    int64_t aiokq_due(aiokq_pool *pool, int64_t now) noexcept
    int aiokq_take_ready(aiokq_pool *pool, int32_t *numbers, int room) noexcept
    aiokq_segment *aiokq_take(
        aiokq_pool *pool, aiokq_slot *slot, int64_t most, int64_t *first, int64_t *end
    ) noexcept
    aiokq_segment *aiokq_take_unresolved(
        aiokq_pool *pool, aiokq_slot *slot, int64_t *first, int64_t *end
    ) noexcept

    ctypedef struct aiokq_report:
        const unsigned char *topic
        int32_t topic_size
        int32_t number
        int64_t *numbers

    void aiokq_report_topic(const aiokq_slot *slot, aiokq_report *report) noexcept
    int32_t aiokq_report_topics(
        aiokq_pool *pool, aiokq_report *reports, int32_t room, unsigned char *names,
        int32_t name_room
    ) noexcept
    void aiokq_new_window(aiokq_pool *pool) noexcept
    int64_t aiokq_feed(
        aiokq_pool *pool, const unsigned char *data, int64_t size, int64_t sequence, int replayed,
        int when_full, int64_t limit, int64_t arrival
    ) noexcept
    void aiokq_finish_segments(aiokq_pool *pool, aiokq_segment *segments) noexcept
    aiokq_ring *aiokq_ring_of(aiokq_pool *pool, int reason, int transport) noexcept
    void aiokq_ring_copy(
        const aiokq_pool *pool, const aiokq_ring *ring, aiokq_ring *copy, unsigned char *data
    ) noexcept
    void aiokq_ring_clear(aiokq_ring *ring) noexcept

    void aiokq_survey_rows(
        const aiokq_segment *segment, int64_t first, int64_t end, int64_t earliest,
        int64_t latest, aiokq_survey *found
    ) noexcept
    void aiokq_fill_offsets(
        const aiokq_segment *segment, int64_t first, int64_t end, int keys, int32_t *offsets,
        unsigned char *bits
    ) noexcept
    void aiokq_fill_times(
        const aiokq_segment *segment, int64_t first, int64_t end, int64_t earliest,
        int64_t latest, int64_t *times
    ) noexcept
    void aiokq_fill_partitions(
        const aiokq_segment *segment, int64_t first, int64_t end, uint32_t partitions,
        const unsigned char *usable, int32_t *numbers, unsigned char *bits
    ) noexcept
    void aiokq_fill_headers(
        const aiokq_segment *segment, int64_t first, int64_t end, int64_t earliest,
        int64_t latest, int32_t *rows, int32_t *text_offsets, char *texts
    ) noexcept
    int64_t aiokq_batch_ends(
        const aiokq_segment *segment, int64_t first, int64_t end, int64_t messages, int64_t size,
        int64_t *ends
    ) noexcept
