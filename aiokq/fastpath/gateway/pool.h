/* The gateway's pool: messages in arenas of their topics, under one mutex. Needs no Python.
 *
 * A segment is a block of memory with messages of one topic. Values are stored from its beginning,
 * rows from its end, and keys in a block of their own, so that values and keys are columns already.
 * A segment never moves. A range of rows is taken from a segment, and the range holds a reference
 * to the segment. If a batch ends in the middle of a segment, the next batch begins with the rest.
 * pure_pool.py has the same rules in Python.
 * Tests: tests/unit/fastpath/test_gateway_pool.py, tests/property/test_gateway_parity.py. */
#ifndef AIOKQ_GATEWAY_POOL_H
#define AIOKQ_GATEWAY_POOL_H

#include "aiokq/fastpath/gateway/clock.h"
#include "aiokq/fastpath/gateway/parse.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes that a message uses beside key and value: a row, and its share of what is unused in its
 * segment. benchmarks/micro/gateway.py measures it. */
#define AIOKQ_MESSAGE_OVERHEAD 48
#define AIOKQ_TOPIC_OVERHEAD 1024
#define AIOKQ_SAMPLES 25
#define AIOKQ_FRESH 64 /* names of topics that are copied at once */
#define AIOKQ_READY 256 /* numbers of due slots that are copied at once */
#define AIOKQ_TRANSPORTS 4 /* the last one is Pool.feed */
#define AIOKQ_FED 3
#define AIOKQ_VERSIONS 64
#define AIOKQ_EVALUATED 65536 /* a longer backlog of a new topic is due at once */
#define AIOKQ_NEVER INT64_MAX
#define AIOKQ_RESERVED 8 /* when an eighth or less of the pool is free, see aiokq_press_if_full() */

/* The number of unregistered topics is limited. At the limit, a new topic replaces an old topic
 * with few messages, of the group of senders with the most unregistered topics. */
#define AIOKQ_SENDERS 1024 /* groups of senders; each sender is in one of them */
#define AIOKQ_CANDIDATES 8 /* topics of a group that are examined */
#define AIOKQ_FEW 64       /* a topic with more messages is not replaced */
#define AIOKQ_FEW_BYTES (16 * 1024)

/* What happens to a message for which there is no room. */
#define AIOKQ_DISCARD 0
#define AIOKQ_WAIT 1  /* aiokq_accept returns 0, and nothing is counted */
#define AIOKQ_FORCE 2 /* it is stored nevertheless */

/* Bytes that a message uses in the queue of refused messages, beside topic, key and value. They
 * include what the allocator adds. */
#define AIOKQ_REFUSED_OVERHEAD 96

/* Bytes that a refused message uses beside topic, key and value from the queue until its outcome is
 * known. Most of them are for objects of Python. */
#define AIOKQ_OPEN_OVERHEAD 512

#define AIOKQ_SMALLEST_SEGMENT 512
#define AIOKQ_LARGEST_SEGMENT (512 * 1024)
#define AIOKQ_SPARES 8 /* segments of a pool that are kept to be used again */
/* Tests define smaller values of the next three. */
#ifndef AIOKQ_LARGE
#define AIOKQ_MAPPED (64 * 1024) /* from this size on, segments are mapped, not allocated */
#define AIOKQ_LARGE (128 * 1024) /* larger messages get a segment that is filled without the mutex */
#define AIOKQ_COPIED (16 * 1024) /* other copies of more bytes are made without the mutex, too */
#endif

/* ---------------------------------------------------------------- segments */

typedef struct {
    int64_t timestamp;
    int64_t arrival;
    int64_t sequence;
    uint32_t value_end; /* end of the value, which begins at the `value_end` of the row before */
    uint32_t key_end;
    uint32_t partition_key;
    uint32_t keyed;
} aiokq_row;

typedef struct aiokq_segment {
    struct aiokq_segment *next;
    unsigned char *keys;
    size_t key_capacity;
    size_t capacity; /* bytes of `data` */
    uint32_t count;
    uint32_t first; /* rows before it were taken */
    int refs; /* atomic, because any thread or a forked child may release the last reference */
    int closed; /* no message is added to it, because its messages are being moved */
    int spare;  /* it is one of `spares->count` */
    struct aiokq_spares *spares; /* where it goes after its last reference; NULL if it is freed */
    size_t mapped;               /* bytes of its mapping; 0 if it is allocated */
    _Alignas(aiokq_row) unsigned char data[];
} aiokq_segment;

/* Row `n`; rows are stored from the end of the segment downwards. */
static inline aiokq_row *aiokq_row_at(const aiokq_segment *segment, int64_t n) {
    return (aiokq_row *)(void *)(segment->data + segment->capacity) - 1 - n;
}

static inline uint32_t aiokq_value_start(const aiokq_segment *segment, int64_t n) {
    return n ? aiokq_row_at(segment, n - 1)->value_end : 0;
}

static inline uint32_t aiokq_key_start(const aiokq_segment *segment, int64_t n) {
    return n ? aiokq_row_at(segment, n - 1)->key_end : 0;
}

/* Bytes of keys and values in the rows `from` to `to`. */
static inline int64_t aiokq_span(const aiokq_segment *segment, int64_t from, int64_t to) {
    return (int64_t)(aiokq_value_start(segment, to) - aiokq_value_start(segment, from)) +
           (int64_t)(aiokq_key_start(segment, to) - aiokq_key_start(segment, from));
}

/* Finished segments of a pool that are used again. Without them, the pages of fresh mappings take 7 % of
 * the gateway's CPU time under load. All mappings of the pool's segments have the same size, so that
 * each of them fits. (The part of a mapping that was never written has no pages.)
 *
 * A segment that was kept once counts until it is unmapped, also while it is in use: all its pages may
 * have been written, so it may use more memory than its messages are charged. There are at most
 * AIOKQ_SPARES such segments, a 32nd of the pool. While the pool has no messages, none is kept.
 *
 * There is no lock, because any thread may release a segment, and so may a forked child, in which a
 * lock could be held for ever. */
typedef struct aiokq_spares {
    aiokq_segment *kept[AIOKQ_SPARES]; /* atomic; NULL at free places */
    int count; /* atomic; those that are kept, and those in use that were kept */
    int open;  /* atomic; whether finished segments are kept */
    int holds; /* atomic; the pool and all its mapped segments have one each */
    size_t size; /* bytes of a mapping */
} aiokq_spares;

static inline void aiokq_spares_drop(aiokq_spares *spares) {
    if (__atomic_sub_fetch(&spares->holds, 1, __ATOMIC_ACQ_REL) == 0)
        free(spares);
}

static inline void aiokq_spares_unmap(aiokq_spares *spares, aiokq_segment *segment) {
    if (segment->spare)
        __atomic_sub_fetch(&spares->count, 1, __ATOMIC_RELAXED);
    munmap(segment, segment->mapped);
    aiokq_spares_drop(spares);
}

/* Returns a segment that was kept, or NULL. */
static inline aiokq_segment *aiokq_spares_take(aiokq_spares *spares) {
    for (int n = 0; n < AIOKQ_SPARES; n++) {
        aiokq_segment *found = __atomic_exchange_n(&spares->kept[n], NULL, __ATOMIC_SEQ_CST);
        if (found != NULL)
            return found;
    }
    return NULL;
}

/* Keeps no segments until the pool needs another one. */
static inline void aiokq_spares_close(aiokq_spares *spares) {
    aiokq_segment *segment;
    __atomic_store_n(&spares->open, 0, __ATOMIC_SEQ_CST);
    while ((segment = aiokq_spares_take(spares)) != NULL)
        aiokq_spares_unmap(spares, segment);
}

/* Keeps a finished segment; returns 0 if it is to be unmapped. */
static inline int aiokq_spares_put(aiokq_spares *spares, aiokq_segment *segment) {
    if (!__atomic_load_n(&spares->open, __ATOMIC_RELAXED))
        return 0;
    if (!segment->spare) {
        if (__atomic_add_fetch(&spares->count, 1, __ATOMIC_RELAXED) > AIOKQ_SPARES) {
            __atomic_sub_fetch(&spares->count, 1, __ATOMIC_RELAXED);
            return 0;
        }
        segment->spare = 1;
    }
    for (int n = 0; n < AIOKQ_SPARES; n++) {
        aiokq_segment *none = NULL;
        if (__atomic_compare_exchange_n(&spares->kept[n], &none, segment, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
            if (!__atomic_load_n(&spares->open, __ATOMIC_SEQ_CST))
                aiokq_spares_close(spares); /* it was closed meanwhile */
            return 1;
        }
    }
    return 0;
}

/* Returns a mapping of `size` bytes, or a larger one of `spares`; NULL if there is no memory. */
static inline aiokq_segment *aiokq_segment_map(aiokq_spares *spares, size_t size) {
    aiokq_segment *segment;
    void *found;
    if (spares != NULL) {
        if (!__atomic_load_n(&spares->open, __ATOMIC_RELAXED))
            __atomic_store_n(&spares->open, 1, __ATOMIC_SEQ_CST);
        segment = aiokq_spares_take(spares);
        if (segment != NULL)
            return segment;
        size = spares->size;
    }
    found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return NULL;
    segment = (aiokq_segment *)found;
    segment->mapped = size;
    segment->spares = spares;
    if (spares != NULL)
        __atomic_add_fetch(&spares->holds, 1, __ATOMIC_RELAXED);
    return segment;
}

/* Returns an empty segment; `spares` may be NULL. */
static inline aiokq_segment *aiokq_segment_new(aiokq_spares *spares, size_t capacity) {
    size_t size;
    aiokq_segment *segment;
    capacity = (capacity + 7) & ~(size_t)7;
    size = sizeof(aiokq_segment) + capacity;
    if (size >= AIOKQ_MAPPED) {
        segment = aiokq_segment_map(spares != NULL && size <= spares->size ? spares : NULL, size);
    } else {
        segment = (aiokq_segment *)malloc(size);
        if (segment != NULL) {
            segment->mapped = 0;
            segment->spares = NULL;
        }
    }
    if (segment == NULL)
        return NULL;
    segment->next = NULL;
    segment->keys = NULL;
    segment->key_capacity = 0;
    segment->capacity = capacity;
    segment->count = segment->first = 0;
    segment->refs = 1;
    segment->closed = 0;
    return segment;
}

static inline void aiokq_segment_hold(aiokq_segment *segment) {
    __atomic_add_fetch(&segment->refs, 1, __ATOMIC_RELAXED);
}

static inline void aiokq_segment_release(aiokq_segment *segment) {
    if (__atomic_sub_fetch(&segment->refs, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    free(segment->keys);
    if (segment->spares != NULL) {
        aiokq_spares *spares = segment->spares;
        /* Once the segment is kept, another thread may unmap it, and end the pool. */
        __atomic_add_fetch(&spares->holds, 1, __ATOMIC_RELAXED);
        if (!aiokq_spares_put(spares, segment))
            aiokq_spares_unmap(spares, segment);
        aiokq_spares_drop(spares);
    } else if (segment->mapped) {
        munmap(segment, segment->mapped);
    } else {
        free(segment);
    }
}

/* Makes room for a message; returns 0 if that is not possible. The block of the keys moves when it
 * grows, so it grows only while nothing that was taken refers to the segment. */
static inline int aiokq_segment_room(aiokq_segment *segment, int64_t key_size, int64_t value_size) {
    size_t used = aiokq_value_start(segment, segment->count);
    size_t rows = ((size_t)segment->count + 1) * sizeof(aiokq_row);
    size_t keys, capacity;
    unsigned char *moved;
    if (segment->closed || segment->count == UINT32_MAX ||
        used + (size_t)value_size + rows > segment->capacity)
        return 0;
    keys = aiokq_key_start(segment, segment->count) + (size_t)key_size;
    if (keys <= segment->key_capacity)
        return 1;
    if (__atomic_load_n(&segment->refs, __ATOMIC_ACQUIRE) != 1 || keys > INT32_MAX ||
        (segment->count && keys > AIOKQ_LARGEST_SEGMENT))
        return 0;
    capacity = segment->key_capacity + segment->key_capacity / 2;
    capacity = keys > capacity ? keys : capacity;
    moved = (unsigned char *)realloc(segment->keys, capacity);
    if (moved == NULL)
        return 0;
    segment->keys = moved;
    segment->key_capacity = capacity;
    return 1;
}

/* Adds the row of a message whose key and value are in the segment already. */
static inline void aiokq_segment_add_row(aiokq_segment *segment, const aiokq_row *row,
                                         uint32_t key_size, uint32_t value_size) {
    aiokq_row *stored = aiokq_row_at(segment, segment->count);
    uint32_t value_start = aiokq_value_start(segment, segment->count);
    uint32_t key_start = aiokq_key_start(segment, segment->count);
    *stored = *row;
    stored->value_end = value_start + value_size;
    stored->key_end = key_start + key_size;
    segment->count++;
}

static inline void aiokq_segment_add(aiokq_segment *segment, const aiokq_row *row,
                                     const unsigned char *key, uint32_t key_size,
                                     const unsigned char *value, uint32_t value_size) {
    if (value_size)
        memcpy(segment->data + aiokq_value_start(segment, segment->count), value, value_size);
    if (key_size)
        memcpy(segment->keys + aiokq_key_start(segment, segment->count), key, key_size);
    aiokq_segment_add_row(segment, row, key_size, value_size);
}

/* Returns a segment with key and value of one message, whose row is added later; NULL if there is
 * no memory. */
static inline aiokq_segment *aiokq_segment_of(const aiokq_message *message) {
    size_t capacity = (size_t)message->value_size + sizeof(aiokq_row);
    aiokq_segment *segment = aiokq_segment_new(NULL, capacity);
    if (segment == NULL)
        return NULL;
    if (message->key_size) {
        segment->keys = (unsigned char *)malloc((size_t)message->key_size);
        if (segment->keys == NULL) {
            aiokq_segment_release(segment);
            return NULL;
        }
        segment->key_capacity = (size_t)message->key_size;
        memcpy(segment->keys, message->key, (size_t)message->key_size);
    }
    if (message->value_size)
        memcpy(segment->data, message->value, (size_t)message->value_size);
    return segment;
}

/* Copies some rows to a new segment; `rows` are counted from `from`. */
static inline aiokq_segment *aiokq_segment_select(const aiokq_segment *segment, int64_t from,
                                                  const int64_t *rows, int64_t count) {
    size_t values = 0, keys = 0;
    aiokq_segment *made;
    for (int64_t n = 0; n < count; n++) {
        int64_t at = from + rows[n];
        keys += aiokq_key_start(segment, at + 1) - aiokq_key_start(segment, at);
        values += aiokq_value_start(segment, at + 1) - aiokq_value_start(segment, at);
    }
    if (keys > INT32_MAX || values > INT32_MAX)
        return NULL;
    made = aiokq_segment_new(NULL, values + (size_t)count * sizeof(aiokq_row));
    if (made == NULL)
        return NULL;
    made->keys = (unsigned char *)malloc(keys + 1);
    if (made->keys == NULL) {
        aiokq_segment_release(made);
        return NULL;
    }
    made->key_capacity = keys + 1;
    for (int64_t n = 0; n < count; n++) {
        int64_t at = from + rows[n];
        uint32_t key = aiokq_key_start(segment, at), value = aiokq_value_start(segment, at);
        const aiokq_row *row = aiokq_row_at(segment, at);
        aiokq_segment_add(made, row, segment->keys == NULL ? made->keys : segment->keys + key,
                          row->key_end - key, segment->data + value, row->value_end - value);
    }
    return made;
}

/* ---------------------------------------------------------------- the pool */

typedef struct aiokq_slot {
    /* The fields that a report reads come first, so that they are in two cache lines. */
    unsigned char *topic;
    int32_t topic_size;
    int32_t number;
    int64_t received;
    int64_t held;
    int64_t held_bytes;
    int64_t too_long;
    int64_t rate_limited;
    int64_t no_memory;
    int64_t earliest;
    int64_t latest;
    int64_t queued; /* of `too_long`, those whose outcome the loop decides */
    struct aiokq_slot *before; /* in the list of ready or of fresh slots */
    struct aiokq_slot *after;
    struct aiokq_slot *older; /* in the list of unregistered slots of a group of senders */
    struct aiokq_slot *newer;
    aiokq_segment *head;
    aiokq_segment *tail;
    uint32_t hash;
    int32_t heap_at; /* index in the heap of deadlines; -1 if there is no deadline */
    int registered;
    int known; /* whether the table finds the slot by its topic */
    int listed;
    int32_t senders; /* the group of senders whose list has the slot; -1 if none has it */
    uint32_t next_capacity;
    int64_t largest; /* largest message while it was not registered */
    int64_t due;
    int64_t pending;
    int64_t pending_bytes;
    int64_t deadline;
    int64_t batch_messages;
    int64_t batch_bytes;
    int64_t batch_ms;
    int64_t max_message_bytes;
    int64_t rate_interval;
    int64_t rate_most;
    int64_t window;
    int64_t in_window;
    int window_began;
} aiokq_slot;

typedef struct {
    aiokq_slot *first;
    aiokq_slot *last;
} aiokq_slots;

/* The unregistered slots that a group of senders made. */
typedef struct {
    aiokq_slot *oldest; /* the slot whose last message is the oldest */
    aiokq_slot *newest;
    int32_t count;
} aiokq_names;

typedef struct {
    int64_t held;
    int32_t size;
    unsigned char topic[AIOKQ_TOPIC_BYTES];
} aiokq_fresh;

typedef struct {
    int64_t arrival;
    int32_t size;
} aiokq_sample;

typedef struct {
    unsigned char *data; /* AIOKQ_SAMPLES pieces of `sample_bytes`, allocated with the first one */
    aiokq_sample kept[AIOKQ_SAMPLES];
    int count;
    int oldest;
} aiokq_ring;

typedef struct aiokq_refused {
    struct aiokq_refused *next;
    int64_t sequence;
    int64_t timestamp;
    int64_t arrival;
    int64_t value_size;
    int32_t topic_size;
    int32_t key_size;
    uint32_t partition_key;
    int keyed;
    int reason;
    int transport;
    int64_t charge; /* bytes of the pool, of a message whose outcome the loop decides; else 0 */
    unsigned char data[]; /* topic, key, value */
} aiokq_refused;

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t memory;
    int waiting; /* threads that wait for memory */
    int wake_fd;
    int woken;
    int must_wake; /* write to wake_fd after unlocking */
    int pressed;   /* there is hardly any room, so the next aiokq_due() makes all messages due */
    int starved;   /* the loop waits for room: it is woken when memory is freed */
    int closed;
    int spooled; /* whether `finished` names the fed messages that were discarded */
    int fixed_clock;
    int64_t fixed_mono;
    int64_t fixed_wall;

    int64_t max_bytes;
    int64_t topic_share; /* a topic may hold this many times as much as is free; 0: any part */
    int64_t sample_bytes;
    int64_t max_names;
    int64_t refused_bytes;
    uint32_t refused_reasons;
    uint32_t refused_whole; /* reasons that have `whole_rate`; beyond it, the next two limits apply */
    int64_t refused_prefix; /* bytes of key and of value that the queue keeps; -1: all */
    int64_t refused_rate;   /* messages that the queue takes in a second; 0: any number */
    int64_t refused_second;
    int64_t refused_in_second;
    int64_t whole_rate; /* messages in a second with a reason of `refused_whole`; 0: any number */
    int64_t whole_next; /* monotonic nanoseconds at which the next one would come at this rate */
    uint32_t largest_segment;
    aiokq_spares *spares;
    uint64_t seed;

    aiokq_slot **slots; /* by number; NULL where a number is free */
    int32_t slot_count;
    int32_t slot_room;
    int32_t *free_numbers;
    int32_t free_count;
    int32_t *table; /* numbers + 1 by hash of the topic; open addressing */
    uint32_t table_size;
    uint32_t table_used;
    aiokq_slot **heap;
    int32_t heap_count;
    aiokq_slots ready;
    aiokq_slots fresh;
    aiokq_names *names_of; /* by group of senders; allocated with the first name */
    const void *turn;      /* the connection of which an incomplete message may still grow */
    int64_t crowded_at;    /* monotonic milliseconds at which a connection last waited for the turn */
    aiokq_slot *last_slot; /* that of the previous message */
    int64_t armed; /* the deadline that the loop knows */

    int outcome; /* of the last message: -1, or the reason for which it was discarded */
    int64_t used;
    int64_t pending; /* the part of `used` of messages that wait for their batches */
    int64_t partial;
    int64_t held;
    int64_t taken;
    int64_t unresolved;
    int64_t names;
    int64_t received;
    int64_t received_bytes;
    int64_t replayed;
    int64_t sequence;
    int64_t refused_lost;
    int64_t refused_used;   /* the used part of `refused_bytes` */
    int64_t refused_queued; /* the part of `refused_used` of messages that are in the queue */
    int64_t refused_open;   /* messages in the queue whose outcome the loop decides */
    int64_t discarded[AIOKQ_REASONS];
    int versions;
    int version[AIOKQ_VERSIONS];
    int64_t version_count[AIOKQ_VERSIONS];
    aiokq_ring samples[AIOKQ_BAD_TOPIC][AIOKQ_TRANSPORTS];
    aiokq_ring bad_topics;
    aiokq_refused *refused_first;
    aiokq_refused *refused_last;
    int64_t *finished; /* sequences */
    int64_t finished_count;
    int64_t finished_room;
} aiokq_pool;

/* Milliseconds, monotonic and since 1970; under the mutex. */
static inline void aiokq_pool_now(const aiokq_pool *pool, int64_t *mono, int64_t *wall) {
    if (pool->fixed_clock) {
        *mono = pool->fixed_mono;
        *wall = pool->fixed_wall;
    } else {
        *mono = aiokq_ms(CLOCK_MONOTONIC);
        *wall = aiokq_ms(CLOCK_REALTIME);
    }
}

static inline void aiokq_pool_lock(aiokq_pool *pool) {
    pthread_mutex_lock(&pool->mutex);
}

static inline void aiokq_write_fd(int fd) {
    /* It fails only if the pipe is full, which wakes the loop too, or if the loop closed it. */
    uint64_t one = 1;
    ssize_t written = fd < 0 ? 0 : write(fd, &one, sizeof one);
    (void)written;
}

/* Wakes the loop without releasing the mutex. */
static inline void aiokq_write_wake(aiokq_pool *pool) {
    if (pool->must_wake)
        aiokq_write_fd(pool->wake_fd);
    pool->must_wake = 0;
}

static inline void aiokq_pool_unlock(aiokq_pool *pool) {
    int fd = pool->must_wake ? pool->wake_fd : -1;
    pool->must_wake = 0;
    pthread_mutex_unlock(&pool->mutex);
    aiokq_write_fd(fd);
}

static inline void aiokq_wake(aiokq_pool *pool) {
    if (!pool->woken)
        pool->woken = pool->must_wake = 1;
}

static inline void aiokq_memory_freed(aiokq_pool *pool) {
    if (pool->waiting)
        pthread_cond_broadcast(&pool->memory);
    if (pool->starved) {
        pool->starved = 0;
        aiokq_wake(pool);
    }
}

static inline int aiokq_pool_make(aiokq_pool *pool, int64_t max_bytes, int wake_fd, uint64_t seed) {
    memset(pool, 0, sizeof *pool);
    pool->max_bytes = max_bytes;
    pool->wake_fd = wake_fd;
    pool->seed = seed;
    pool->armed = AIOKQ_NEVER;
    pool->outcome = -1;
    max_bytes /= 256;
    max_bytes = max_bytes > AIOKQ_LARGEST_SEGMENT ? AIOKQ_LARGEST_SEGMENT : max_bytes;
    pool->largest_segment = (uint32_t)(max_bytes < AIOKQ_MAPPED ? AIOKQ_MAPPED : max_bytes);
    pool->spares = (aiokq_spares *)calloc(1, sizeof *pool->spares);
    if (pool->spares == NULL)
        return 0;
    pool->spares->holds = 1;
    pool->spares->size = sizeof(aiokq_segment) + (((size_t)pool->largest_segment + 7) & ~(size_t)7);
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) {
        free(pool->spares);
        return 0;
    }
    if (pthread_cond_init(&pool->memory, NULL) != 0) {
        pthread_mutex_destroy(&pool->mutex);
        free(pool->spares);
        return 0;
    }
    return 1;
}

/* Gives the memory of spare segments back if the pool has no messages; without the mutex. If
 * messages arrive meanwhile, fewer segments are kept for a moment. */
static inline void aiokq_rest_if_empty(aiokq_pool *pool, int64_t held) {
    if (held == 0 && __atomic_load_n(&pool->spares->open, __ATOMIC_RELAXED))
        aiokq_spares_close(pool->spares);
}

/* ---------------------------------------------------------------- lists, deadlines */

static inline void aiokq_list_add(aiokq_slots *list, aiokq_slot *slot) {
    slot->listed = 1;
    slot->after = NULL;
    slot->before = list->last;
    if (list->last != NULL)
        list->last->after = slot;
    else
        list->first = slot;
    list->last = slot;
}

static inline void aiokq_list_remove(aiokq_slots *list, aiokq_slot *slot) {
    if (!slot->listed)
        return;
    slot->listed = 0;
    if (slot->before != NULL)
        slot->before->after = slot->after;
    else
        list->first = slot->after;
    if (slot->after != NULL)
        slot->after->before = slot->before;
    else
        list->last = slot->before;
}

static inline void aiokq_heap_put(aiokq_pool *pool, int32_t at, aiokq_slot *slot) {
    pool->heap[at] = slot;
    slot->heap_at = at;
}

static inline void aiokq_heap_up(aiokq_pool *pool, int32_t at, aiokq_slot *slot) {
    while (at > 0 && pool->heap[(at - 1) / 2]->deadline > slot->deadline) {
        aiokq_heap_put(pool, at, pool->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    aiokq_heap_put(pool, at, slot);
}

static inline void aiokq_heap_remove(aiokq_pool *pool, aiokq_slot *slot) {
    int32_t at = slot->heap_at, child;
    aiokq_slot *last;
    if (at < 0)
        return;
    slot->heap_at = -1;
    last = pool->heap[--pool->heap_count];
    if (last == slot)
        return;
    if (at > 0 && pool->heap[(at - 1) / 2]->deadline > last->deadline) {
        aiokq_heap_up(pool, at, last);
        return;
    }
    while ((child = 2 * at + 1) < pool->heap_count) {
        if (child + 1 < pool->heap_count &&
            pool->heap[child + 1]->deadline < pool->heap[child]->deadline)
            child++;
        if (pool->heap[child]->deadline >= last->deadline)
            break;
        aiokq_heap_put(pool, at, pool->heap[child]);
        at = child;
    }
    aiokq_heap_put(pool, at, last);
}

/* Sets or lowers the deadline of a slot. The heap has room for all slots. */
static inline void aiokq_set_deadline(aiokq_pool *pool, aiokq_slot *slot, int64_t deadline) {
    if (slot->heap_at < 0) {
        slot->deadline = deadline;
        aiokq_heap_up(pool, pool->heap_count++, slot);
    } else if (deadline < slot->deadline) {
        slot->deadline = deadline;
        aiokq_heap_up(pool, slot->heap_at, slot);
    }
    if (deadline < pool->armed)
        aiokq_wake(pool);
}

/* Makes the first `count` messages of a registered slot due. */
static inline void aiokq_mark_due(aiokq_pool *pool, aiokq_slot *slot, int64_t count) {
    pool->pending -= slot->pending_bytes + slot->pending * AIOKQ_MESSAGE_OVERHEAD;
    slot->pending = slot->pending_bytes = 0;
    aiokq_heap_remove(pool, slot);
    if (count > 0 && slot->due == 0) {
        aiokq_list_add(&pool->ready, slot);
        aiokq_wake(pool);
    }
    slot->due = count;
}

/* Notes that there is hardly any room. Messages may wait for a batch that has no limit of time, and
 * that would never be complete in a full pool. */
static inline void aiokq_press(aiokq_pool *pool) {
    if (pool->heap_count == 0)
        return;
    pool->pressed = 1;
    aiokq_wake(pool);
}

/* The same if an eighth or less of the pool is free, and the messages that wait for their batches use
 * at least as much. If they use less, others fill the pool, for example those of a topic without a
 * leader: then smaller batches would free hardly any memory. */
static inline void aiokq_press_if_full(aiokq_pool *pool) {
    int64_t left = pool->max_bytes - pool->used;
    if (left <= pool->max_bytes / AIOKQ_RESERVED && left <= pool->pending)
        aiokq_press(pool);
}

/* ---------------------------------------------------------------- topics */

/* A hash with a random seed, so that made-up names do not collide on purpose. */
static inline uint32_t aiokq_topic_hash(uint64_t seed, const unsigned char *at, int32_t size) {
    uint64_t hash = seed ^ (uint64_t)size * UINT64_C(0x9e3779b97f4a7c15), word;
    for (; size >= 8; size -= 8, at += 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
        hash ^= hash >> 29 ^ seed;
    }
    word = 0;
    memcpy(&word, at, (size_t)size);
    hash = (hash ^ word) * UINT64_C(0x94d049bb133111eb);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(hash >> 32);
}

static inline int aiokq_same_topic(const aiokq_slot *slot, const unsigned char *topic,
                                   int32_t size) {
    return slot->topic_size == size && memcmp(slot->topic, topic, (size_t)size) == 0;
}

static inline aiokq_slot *aiokq_find(const aiokq_pool *pool, uint32_t hash,
                                     const unsigned char *topic, int32_t size) {
    uint32_t at;
    if (pool->table_size == 0)
        return NULL;
    for (at = hash & (pool->table_size - 1); pool->table[at] != 0;
         at = (at + 1) & (pool->table_size - 1)) {
        aiokq_slot *slot = pool->slots[pool->table[at] - 1];
        if (slot->hash == hash && aiokq_same_topic(slot, topic, size))
            return slot;
    }
    return NULL;
}

static inline void aiokq_table_put(int32_t *table, uint32_t size, const aiokq_slot *slot) {
    uint32_t at = slot->hash & (size - 1);
    while (table[at] != 0)
        at = (at + 1) & (size - 1);
    table[at] = slot->number + 1;
}

/* Removes a topic from the table; later entries of the same run move up. */
static inline void aiokq_table_remove(aiokq_pool *pool, aiokq_slot *slot) {
    uint32_t mask = pool->table_size - 1, at = slot->hash & mask, next, home;
    if (!slot->known)
        return;
    slot->known = 0;
    if (pool->last_slot == slot)
        pool->last_slot = NULL;
    while (pool->table[at] != slot->number + 1)
        at = (at + 1) & mask;
    for (next = (at + 1) & mask; pool->table[next] != 0; next = (next + 1) & mask) {
        home = pool->slots[pool->table[next] - 1]->hash & mask;
        if (((next - home) & mask) >= ((next - at) & mask)) {
            pool->table[at] = pool->table[next];
            at = next;
        }
    }
    pool->table[at] = 0;
    pool->table_used--;
}

/* Makes room for one more slot; returns 0 if there is no memory. */
static inline int aiokq_slot_room(aiokq_pool *pool) {
    if (pool->slot_count == pool->slot_room && pool->free_count == 0) {
        int32_t room = pool->slot_room ? 2 * pool->slot_room : 64;
        void *slots, *numbers, *heap;
        if (room > INT32_MAX / 16)
            return 0;
        slots = realloc(pool->slots, (size_t)room * sizeof *pool->slots);
        if (slots == NULL)
            return 0;
        pool->slots = (aiokq_slot **)slots;
        numbers = realloc(pool->free_numbers, (size_t)room * sizeof *pool->free_numbers);
        if (numbers == NULL)
            return 0;
        pool->free_numbers = (int32_t *)numbers;
        heap = realloc(pool->heap, (size_t)room * sizeof *pool->heap);
        if (heap == NULL)
            return 0;
        pool->heap = (aiokq_slot **)heap;
        pool->slot_room = room;
    }
    if (2 * (pool->table_used + 1) > pool->table_size) {
        uint32_t size = pool->table_size ? 2 * pool->table_size : 256;
        int32_t *table = (int32_t *)calloc(size, sizeof *table);
        if (table == NULL)
            return 0;
        for (int32_t n = 0; n < pool->slot_count; n++)
            if (pool->slots[n] != NULL && pool->slots[n]->known)
                aiokq_table_put(table, size, pool->slots[n]);
        free(pool->table);
        pool->table = table;
        pool->table_size = size;
    }
    return 1;
}

static inline aiokq_slot *aiokq_slot_new(aiokq_pool *pool, uint32_t hash,
                                         const unsigned char *topic, int32_t size) {
    aiokq_slot *slot;
    if (!aiokq_slot_room(pool))
        return NULL;
    slot = (aiokq_slot *)calloc(1, sizeof *slot + (size_t)size);
    if (slot == NULL)
        return NULL;
    slot->topic = (unsigned char *)(slot + 1);
    memcpy(slot->topic, topic, (size_t)size);
    slot->topic_size = size;
    slot->hash = hash;
    slot->number = pool->free_count ? pool->free_numbers[--pool->free_count] : pool->slot_count++;
    slot->heap_at = slot->senders = -1;
    slot->known = 1;
    slot->batch_ms = slot->max_message_bytes = slot->rate_most = -1;
    slot->next_capacity = AIOKQ_SMALLEST_SEGMENT;
    slot->earliest = AIOKQ_NEVER;
    slot->latest = -AIOKQ_NEVER;
    pool->slots[slot->number] = slot;
    aiokq_table_put(pool->table, pool->table_size, slot);
    pool->table_used++;
    return slot;
}

static inline void aiokq_segments_free(aiokq_segment *segment) {
    while (segment != NULL) {
        aiokq_segment *next = segment->next;
        aiokq_segment_release(segment);
        segment = next;
    }
}

/* ---------------------------------------------------------------- names that are not known */

/* Takes a slot out of the list of its senders. */
static inline void aiokq_name_remove(aiokq_pool *pool, aiokq_slot *slot) {
    aiokq_names *names;
    if (slot->senders < 0)
        return;
    names = pool->names_of + slot->senders;
    slot->senders = -1;
    names->count--;
    if (slot->older != NULL)
        slot->older->newer = slot->newer;
    else
        names->oldest = slot->newer;
    if (slot->newer != NULL)
        slot->newer->older = slot->older;
    else
        names->newest = slot->older;
}

/* Makes a slot the newest one of a group of senders. */
static inline void aiokq_name_put(aiokq_pool *pool, aiokq_slot *slot, int32_t senders) {
    aiokq_names *names = pool->names_of + senders;
    slot->senders = senders;
    slot->newer = NULL;
    slot->older = names->newest;
    if (names->newest != NULL)
        names->newest->newer = slot;
    else
        names->oldest = slot;
    names->newest = slot;
    names->count++;
}

/* Notes the first message of an unregistered slot; returns 0 if there is no memory. */
static inline int aiokq_name_add(aiokq_pool *pool, aiokq_slot *slot, uint32_t sender) {
    if (pool->names_of == NULL) {
        pool->names_of = (aiokq_names *)calloc(AIOKQ_SENDERS, sizeof *pool->names_of);
        if (pool->names_of == NULL)
            return 0;
    }
    aiokq_name_put(pool, slot, (int32_t)((sender * UINT32_C(2654435761)) >> 22));
    pool->names++;
    return 1;
}

/* Notes a further message of an unregistered slot. */
static inline void aiokq_name_used(aiokq_pool *pool, aiokq_slot *slot) {
    int32_t senders = slot->senders;
    if (senders >= 0 && slot->newer != NULL) {
        aiokq_name_remove(pool, slot);
        aiokq_name_put(pool, slot, senders);
    }
}

/* Frees a slot with what it holds; its number may be used again. */
static inline void aiokq_slot_free(aiokq_pool *pool, aiokq_slot *slot) {
    aiokq_heap_remove(pool, slot);
    aiokq_list_remove(slot->registered ? &pool->ready : &pool->fresh, slot);
    aiokq_name_remove(pool, slot);
    aiokq_table_remove(pool, slot);
    aiokq_segments_free(slot->head);
    pool->slots[slot->number] = NULL;
    pool->free_numbers[pool->free_count++] = slot->number;
    free(slot);
}

static inline aiokq_slot *aiokq_slot_of(const aiokq_pool *pool, int64_t number) {
    aiokq_slot *slot;
    if (number < 0 || number >= pool->slot_count)
        return NULL;
    slot = pool->slots[number];
    return slot != NULL && slot->registered ? slot : NULL;
}

/* ---------------------------------------------------------------- discards */

static inline unsigned char *aiokq_ring_add(const aiokq_pool *pool, aiokq_ring *ring, int64_t size,
                                            int64_t wall) {
    int at;
    if (ring->data == NULL) {
        ring->data = (unsigned char *)malloc((size_t)(AIOKQ_SAMPLES * pool->sample_bytes + 1));
        if (ring->data == NULL)
            return NULL;
    }
    if (ring->count < AIOKQ_SAMPLES) {
        at = (ring->oldest + ring->count++) % AIOKQ_SAMPLES;
    } else {
        at = ring->oldest;
        ring->oldest = (at + 1) % AIOKQ_SAMPLES;
    }
    ring->kept[at].arrival = wall;
    ring->kept[at].size = (int32_t)size;
    return ring->data + at * pool->sample_bytes;
}

static inline void aiokq_sample_raw(aiokq_pool *pool, int reason, int transport,
                                    const unsigned char *data, int64_t size, int64_t wall) {
    unsigned char *kept;
    size = size < pool->sample_bytes ? size : pool->sample_bytes;
    kept = aiokq_ring_add(pool, &pool->samples[reason][transport], size, wall);
    if (kept != NULL && size > 0)
        memcpy(kept, data, (size_t)size);
}

/* Keeps the topic, a space, and the beginning of the value. */
static inline void aiokq_sample_long(aiokq_pool *pool, int transport, const unsigned char *topic,
                                     int64_t topic_size, const unsigned char *value,
                                     int64_t value_size, int64_t wall) {
    int64_t size = topic_size + 1 + value_size;
    unsigned char *kept;
    size = size < pool->sample_bytes ? size : pool->sample_bytes;
    kept = aiokq_ring_add(pool, &pool->samples[AIOKQ_TOO_LONG][transport], size, wall);
    if (kept == NULL || size == 0)
        return;
    memcpy(kept, topic, (size_t)(topic_size < size ? topic_size : size));
    if (topic_size < size)
        kept[topic_size] = ' ';
    if (topic_size + 1 < size)
        memcpy(kept + topic_size + 1, value, (size_t)(size - topic_size - 1));
}

/* Keeps a name that does not exist, once: a repeated one becomes the newest. */
static inline void aiokq_sample_topic(aiokq_pool *pool, const unsigned char *topic, int64_t size,
                                      int64_t wall) {
    aiokq_ring *ring = &pool->bad_topics;
    unsigned char *kept;
    size = size < pool->sample_bytes ? size : pool->sample_bytes;
    for (int n = 0; n < ring->count; n++) {
        int at = (ring->oldest + n) % AIOKQ_SAMPLES;
        if (ring->kept[at].size != size ||
            (size > 0 && memcmp(ring->data + at * pool->sample_bytes, topic, (size_t)size) != 0))
            continue;
        for (ring->count--; n < ring->count; n++) {
            int to = (ring->oldest + n) % AIOKQ_SAMPLES, from = (to + 1) % AIOKQ_SAMPLES;
            ring->kept[to] = ring->kept[from];
            if (ring->kept[to].size > 0)
                memcpy(ring->data + to * pool->sample_bytes, ring->data + from * pool->sample_bytes,
                       (size_t)ring->kept[to].size);
        }
        break;
    }
    kept = aiokq_ring_add(pool, ring, size, wall);
    if (kept != NULL && size > 0)
        memcpy(kept, topic, (size_t)size);
}

/* Notes that a message that was fed has an outcome. */
static inline void aiokq_finish(aiokq_pool *pool, int64_t sequence) {
    if (!pool->spooled || sequence < 0)
        return;
    if (pool->finished_count == pool->finished_room) {
        int64_t room = 2 * pool->finished_room + 64;
        int64_t *moved = (int64_t *)realloc(pool->finished, (size_t)room * sizeof *moved);
        if (moved == NULL)
            return; /* the message is fed again after the next start */
        pool->finished = moved;
        pool->finished_room = room;
    }
    pool->finished[pool->finished_count++] = sequence;
}

/* Notes that the messages of segments that belong to no slot any more have an outcome, and frees
 * the segments. The caller does not hold the mutex; it is taken for one segment at a time. */
static inline void aiokq_finish_segments(aiokq_pool *pool, aiokq_segment *segments) {
    if (pool->spooled) {
        for (const aiokq_segment *segment = segments; segment != NULL; segment = segment->next) {
            aiokq_pool_lock(pool);
            for (uint32_t n = segment->first; n < segment->count; n++)
                aiokq_finish(pool, aiokq_row_at(segment, n)->sequence);
            aiokq_pool_unlock(pool);
        }
    }
    aiokq_segments_free(segments);
}

/* Counts a message against the rate of those that are queued as a whole; returns whether it is within
 * the rate. After a second without messages, as many as in a second may come at once. */
static inline int aiokq_within_rate(aiokq_pool *pool) {
    int64_t mono, wall, step;
    if (pool->whole_rate <= 0)
        return 1;
    aiokq_pool_now(pool, &mono, &wall);
    mono *= 1000000;
    step = 1000000000 / pool->whole_rate;
    pool->whole_next = pool->whole_next > mono ? pool->whole_next : mono;
    if (pool->whole_next + step - mono > 1000000000)
        return 0;
    pool->whole_next += step;
    return 1;
}

/* Returns whether the queue takes a refused message, and counts the message. Called for messages that
 * are cut, or whose reason is not in `refused_whole`. */
static inline int aiokq_queues_refused(aiokq_pool *pool, int64_t size, int64_t wall) {
    if (pool->refused_used + size > pool->refused_bytes)
        return 0;
    if (pool->refused_rate <= 0)
        return 1;
    if (wall / 1000 != pool->refused_second) {
        pool->refused_second = wall / 1000;
        pool->refused_in_second = 0;
    }
    return ++pool->refused_in_second <= pool->refused_rate;
}

/* Allocates the entry of a message in the queue of refused messages; returns NULL if the queue does not
 * take the message. If the reason is in `refused_whole`, and the queue and the pool have room, the
 * message is kept whole and charged. */
static inline aiokq_refused *aiokq_refused_new(aiokq_pool *pool, int reason,
                                               const aiokq_message *message, int64_t value_size,
                                               int64_t wall) {
    int64_t key_size = message->key_size, size = message->topic_size + key_size + value_size;
    int64_t charge = pool->refused_whole >> reason & 1 ? size + AIOKQ_OPEN_OVERHEAD : 0;
    aiokq_refused *entry;
    if (charge && (pool->refused_used + size + AIOKQ_REFUSED_OVERHEAD > pool->refused_bytes ||
                   pool->used + charge > pool->max_bytes || !aiokq_within_rate(pool))) {
        if (pool->refused_prefix < 0)
            return NULL; /* nobody needs a part of the message */
        charge = 0;
    }
    if (charge == 0) {
        if (pool->refused_prefix >= 0) {
            key_size = key_size < pool->refused_prefix ? key_size : pool->refused_prefix;
            value_size = value_size < pool->refused_prefix ? value_size : pool->refused_prefix;
        }
        size = message->topic_size + key_size + value_size;
        if (!aiokq_queues_refused(pool, size + AIOKQ_REFUSED_OVERHEAD, wall))
            return NULL;
    }
    entry = (aiokq_refused *)malloc(sizeof *entry + (size_t)size);
    if (entry == NULL)
        return NULL;
    entry->topic_size = message->topic_size;
    entry->key_size = (int32_t)key_size;
    entry->value_size = value_size;
    entry->charge = charge;
    return entry;
}

/* Fills an entry, and puts it into the queue of refused messages. With `apart` the mutex is released
 * while a large message is copied. */
static inline void aiokq_queue_refused(aiokq_pool *pool, aiokq_refused *entry, int reason,
                                       int transport, const aiokq_message *message, int64_t wall,
                                       int apart) {
    int64_t size = entry->topic_size + entry->key_size + entry->value_size;
    unsigned char *at = entry->data;
    /* Added first, so that the limit holds while the mutex is released. */
    pool->refused_used += size + AIOKQ_REFUSED_OVERHEAD;
    apart = apart && size > AIOKQ_LARGE;
    if (apart)
        aiokq_pool_unlock(pool);
    entry->next = NULL;
    entry->sequence = pool->spooled ? message->sequence : -1;
    entry->timestamp = message->timestamp;
    entry->arrival = wall;
    entry->partition_key = message->partition_key;
    entry->keyed = message->keyed;
    entry->reason = reason;
    entry->transport = transport;
    if (entry->topic_size)
        memcpy(at, message->topic, (size_t)entry->topic_size);
    at += entry->topic_size;
    if (entry->key_size)
        memcpy(at, message->key, (size_t)entry->key_size);
    at += entry->key_size;
    if (entry->value_size)
        memcpy(at, message->value, (size_t)entry->value_size);
    if (apart)
        aiokq_pool_lock(pool);
    if (pool->refused_last != NULL)
        pool->refused_last->next = entry;
    else
        pool->refused_first = entry;
    pool->refused_last = entry;
    pool->refused_queued += size + AIOKQ_REFUSED_OVERHEAD;
    pool->refused_open += entry->charge > 0;
    aiokq_wake(pool);
}

/* Takes all messages out of the queue of refused messages. */
static inline aiokq_refused *aiokq_take_refused(aiokq_pool *pool) {
    aiokq_refused *first = pool->refused_first;
    pool->refused_first = pool->refused_last = NULL;
    pool->refused_used -= pool->refused_queued;
    pool->refused_queued = 0;
    pool->taken += pool->refused_open;
    pool->refused_open = 0;
    return first;
}

/* Discards a message. If `refused_reasons` has the reason, the queue of refused messages gets the
 * message, too; if the queue keeps it whole, the loop decides the outcome. See aiokq_queue_refused
 * for `apart`. */
static inline void aiokq_discard(aiokq_pool *pool, int reason, int transport,
                                 const aiokq_message *message, int64_t value_size, int64_t wall,
                                 aiokq_slot *slot, int apart) {
    aiokq_refused *entry = NULL;
    if (pool->refused_reasons >> reason & 1) {
        entry = aiokq_refused_new(pool, reason, message, value_size, wall);
        pool->refused_lost += entry == NULL;
    }
    /* All is counted before the mutex is released: the slot may be freed then, and a snapshot may be
     * taken. */
    if (slot != NULL) {
        slot->earliest = message->timestamp < slot->earliest ? message->timestamp : slot->earliest;
        slot->latest = message->timestamp > slot->latest ? message->timestamp : slot->latest;
        slot->too_long += reason == AIOKQ_TOO_LONG;
        slot->rate_limited += reason == AIOKQ_RATE_LIMIT;
        slot->no_memory += reason == AIOKQ_NO_MEMORY;
    }
    if (entry != NULL && entry->charge) {
        pool->held++;
        pool->used += entry->charge;
        if (slot != NULL && reason == AIOKQ_TOO_LONG)
            slot->queued++;
        aiokq_press_if_full(pool);
    } else {
        pool->discarded[reason]++;
        aiokq_finish(pool, message->sequence);
    }
    if (entry != NULL)
        aiokq_queue_refused(pool, entry, reason, transport, message, wall, apart);
    /* Set last: another message may have set it while the mutex was released. */
    pool->outcome = reason;
}

/* Discards a message that cannot be read, which the caller has counted as received. */
static inline void aiokq_discard_raw(aiokq_pool *pool, int reason, int transport,
                                     const unsigned char *data, int64_t size, int64_t wall,
                                     int64_t sequence) {
    aiokq_message message;
    memset(&message, 0, sizeof message);
    message.value = data;
    message.sequence = sequence;
    if (reason != AIOKQ_NO_MEMORY && reason != AIOKQ_NOT_ALLOWED)
        aiokq_sample_raw(pool, reason, transport, data, size, wall);
    aiokq_discard(pool, reason, transport, &message, size, wall, NULL, 0);
}

/* Counts a message of `size` bytes, of which only `known` bytes are there. */
static inline void aiokq_lost(aiokq_pool *pool, int reason, int64_t size, int transport,
                              const unsigned char *data, int64_t known, int64_t wall) {
    pool->received++;
    pool->received_bytes += size;
    aiokq_discard_raw(pool, reason, transport, data, known, wall, -1);
}

/* Discards a message that is well-formed, for a reason that the caller decides. */
static inline void aiokq_refuse_message(aiokq_pool *pool, const unsigned char *data, int64_t size,
                                int64_t wall, int transport, int reason) {
    aiokq_message message;
    pool->received++;
    pool->received_bytes += size;
    if (aiokq_parse(data, size, &message) >= 0)
        return;
    message.sequence = -1;
    aiokq_discard(pool, reason, transport, &message, message.value_size, wall, NULL, 0);
}

/* ---------------------------------------------------------------- messages */

/* Counts a message against the rate limit; returns whether it is above the limit. */
static inline int aiokq_limited(aiokq_slot *slot, int64_t now) {
    if (slot->rate_interval <= 0 || slot->rate_most < 0)
        return 0;
    if (!slot->window_began) {
        slot->window_began = 1;
        slot->window = now;
        slot->in_window = 0;
    } else if (now - slot->window >= slot->rate_interval) {
        slot->window = now - (now - slot->window) % slot->rate_interval;
        slot->in_window = 0;
    }
    return ++slot->in_window > slot->rate_most;
}

/* Decides which of the first `held` messages of a slot are due, after the last of them was stored.
 * `size`, `timestamp` and `arrival` are those of this last message. */
static inline void aiokq_account(aiokq_pool *pool, aiokq_slot *slot, int64_t size,
                                 int64_t timestamp, int64_t arrival, int64_t held, int64_t mono,
                                 int64_t wall) {
    size = size > 0 ? size : 1;
    if (slot->batch_bytes > 0) {
        if (size >= slot->batch_bytes) {
            aiokq_mark_due(pool, slot, held);
            return;
        }
        if (slot->pending_bytes + size > slot->batch_bytes)
            aiokq_mark_due(pool, slot, held - 1);
    }
    slot->pending++;
    slot->pending_bytes += size;
    pool->pending += size + AIOKQ_MESSAGE_OVERHEAD;
    if ((slot->batch_messages > 0 && slot->pending >= slot->batch_messages) ||
        (slot->batch_bytes > 0 && slot->pending_bytes >= slot->batch_bytes) ||
        (slot->batch_messages == 0 && slot->batch_bytes == 0 && slot->batch_ms == -1)) {
        aiokq_mark_due(pool, slot, held);
    } else if (slot->batch_ms >= 0) {
        int64_t oldest = timestamp < arrival ? timestamp : arrival;
        oldest = oldest < wall ? oldest : wall;
        if (oldest <= wall - slot->batch_ms)
            aiokq_mark_due(pool, slot, held);
        else
            aiokq_set_deadline(pool, slot, mono + slot->batch_ms - (wall - oldest));
    } else {
        aiokq_set_deadline(pool, slot, AIOKQ_NEVER); /* for aiokq_due() after aiokq_press() */
    }
}

/* Takes an unregistered slot out of the lists, and the charge of its name out of the pool. */
static inline void aiokq_end_unresolved(aiokq_pool *pool, aiokq_slot *slot) {
    pool->used -= AIOKQ_TOPIC_OVERHEAD + slot->topic_size;
    pool->names--;
    pool->unresolved -= slot->held;
    aiokq_list_remove(&pool->fresh, slot);
    aiokq_name_remove(pool, slot);
    aiokq_memory_freed(pool);
}

/* Discards a message that a slot holds. The caller updates `held` and `held_bytes` of the slot. */
static inline void aiokq_discard_held(aiokq_pool *pool, aiokq_slot *slot, const aiokq_row *row,
                                      const unsigned char *key, uint32_t key_size,
                                      const unsigned char *value, uint32_t value_size,
                                      int reason) {
    aiokq_message message;
    memset(&message, 0, sizeof message);
    message.topic = slot->topic;
    message.topic_size = slot->topic_size;
    message.key = key;
    message.key_size = (int32_t)key_size;
    message.value = value;
    message.value_size = (int32_t)value_size;
    message.timestamp = row->timestamp;
    message.partition_key = row->partition_key;
    message.keyed = (int)row->keyed;
    message.sequence = row->sequence;
    pool->used -= (int64_t)key_size + value_size + AIOKQ_MESSAGE_OVERHEAD;
    pool->held--;
    if (reason == AIOKQ_TOO_LONG)
        aiokq_sample_long(pool, AIOKQ_FED, message.topic, message.topic_size, message.value,
                          message.value_size, row->arrival);
    aiokq_discard(pool, reason, AIOKQ_FED, &message, message.value_size, row->arrival, slot, 0);
}

/* Removes an unregistered topic with few messages, and discards its messages. The topic is the
 * oldest such topic of the group of senders with the most unregistered topics, so that a program
 * that invents topic names loses its own topics. Returns 0 if there is no such topic among the
 * AIOKQ_CANDIDATES oldest topics of this group. */
static inline int aiokq_evict(aiokq_pool *pool, int64_t wall) {
    aiokq_names *most = pool->names_of;
    aiokq_slot *slot;
    int tried = 0;
    if (most == NULL)
        return 0;
    for (int32_t n = 1; n < AIOKQ_SENDERS; n++)
        if (pool->names_of[n].count > most->count)
            most = pool->names_of + n;
    for (;; tried++) {
        slot = most->oldest;
        if (slot == NULL || tried == AIOKQ_CANDIDATES)
            return 0;
        if (slot->held <= AIOKQ_FEW && slot->held_bytes <= AIOKQ_FEW_BYTES)
            break;
        aiokq_name_used(pool, slot);
    }
    aiokq_sample_topic(pool, slot->topic, slot->topic_size, wall);
    for (const aiokq_segment *segment = slot->head; segment != NULL; segment = segment->next) {
        for (uint32_t n = segment->first; n < segment->count; n++) {
            const aiokq_row *row = aiokq_row_at(segment, n);
            uint32_t key = aiokq_key_start(segment, n), value = aiokq_value_start(segment, n);
            aiokq_discard_held(pool, slot, row, segment->keys + key, row->key_end - key,
                               segment->data + value, row->value_end - value, AIOKQ_BAD_TOPIC);
        }
    }
    aiokq_end_unresolved(pool, slot);
    aiokq_slot_free(pool, slot);
    return 1;
}

static inline void aiokq_slot_append(aiokq_slot *slot, aiokq_segment *segment) {
    if (slot->tail != NULL)
        slot->tail->next = segment;
    else
        slot->head = segment;
    slot->tail = segment;
}

/* Frees the segment of a large message that is not stored. */
static inline void aiokq_drop_filled(aiokq_pool *pool, aiokq_segment *filled) {
    int outcome = pool->outcome;
    if (filled == NULL)
        return;
    aiokq_pool_unlock(pool);
    aiokq_segment_release(filled);
    aiokq_pool_lock(pool);
    pool->outcome = outcome;
}

/* Makes room for a message in the last segment of a slot; returns 0 if there is no memory. */
static inline int aiokq_slot_fits(const aiokq_pool *pool, aiokq_slot *slot, int64_t key_size,
                                  int64_t value_size) {
    size_t need = (size_t)value_size + sizeof(aiokq_row), capacity = slot->next_capacity;
    aiokq_segment *segment;
    if (slot->tail != NULL && aiokq_segment_room(slot->tail, key_size, value_size))
        return 1;
    segment = aiokq_segment_new(pool->spares, need > capacity ? need : capacity);
    if (segment == NULL)
        return 0;
    if (!aiokq_segment_room(segment, key_size, value_size)) {
        aiokq_segment_release(segment);
        return 0;
    }
    aiokq_slot_append(slot, segment);
    capacity *= 4;
    slot->next_capacity = (uint32_t)(capacity < pool->largest_segment ? capacity
                                                                      : pool->largest_segment);
    return 1;
}

/* Returns whether a topic that holds messages would hold more than its share with `need` bytes more.
 * As the share depends on what is free, there is room for others even beside many such topics. */
static inline int aiokq_over_share(const aiokq_pool *pool, const aiokq_slot *slot, int64_t need) {
    return pool->topic_share > 0 && slot != NULL && slot->held > 0 &&
           slot->held_bytes + need > pool->topic_share * (pool->max_bytes - pool->used - need);
}

/* Stores or discards one message; returns 0, without counting it, if it has to wait. The mutex is
 * released while a large message is copied. */
static inline int aiokq_accept_at(aiokq_pool *pool, const unsigned char *data, int64_t size,
                                  int64_t mono, int64_t wall, int64_t arrival, int transport,
                                  uint32_t sender, int when_full, int64_t sequence) {
    aiokq_message message;
    aiokq_segment *filled = NULL; /* the segment of a large message */
    aiokq_slot *slot;
    aiokq_row row;
    int64_t own, need;
    uint32_t hash = 0;
    int reason = aiokq_parse(data, size, &message), made = 0, lacks = 0, wanted = when_full;
    pool->outcome = -1;
    message.sequence = sequence;
    if (reason >= 0) {
        pool->received++;
        pool->received_bytes += size;
        if (reason == AIOKQ_API_VERSION) {
            int n = 0;
            while (n < pool->versions && pool->version[n] != message.version)
                n++;
            if (n == pool->versions && n < AIOKQ_VERSIONS) {
                pool->version[pool->versions++] = message.version;
                pool->version_count[n] = 0;
            }
            if (n < pool->versions)
                pool->version_count[n]++;
        }
        aiokq_discard_raw(pool, reason, transport, data, size, arrival, sequence);
        return 1;
    }
again:
    pool->outcome = -1;
    reason = -1;
    when_full = wanted;
    slot = pool->last_slot;
    if (slot == NULL || !aiokq_same_topic(slot, message.topic, message.topic_size)) {
        hash = aiokq_topic_hash(pool->seed, message.topic, message.topic_size);
        slot = aiokq_find(pool, hash, message.topic, message.topic_size);
        pool->last_slot = slot;
    }
    own = (int64_t)message.key_size + message.value_size;
    need = own + AIOKQ_MESSAGE_OVERHEAD;
    if (slot == NULL) {
        if (!aiokq_legal_topic(message.topic, message.topic_size)) {
            pool->received++;
            pool->received_bytes += size;
            aiokq_sample_topic(pool, message.topic, message.topic_size, wall);
            aiokq_discard(pool, AIOKQ_BAD_TOPIC, transport, &message, message.value_size,
                          arrival, NULL, 1);
            goto counted;
        }
        need += AIOKQ_TOPIC_OVERHEAD + message.topic_size;
    } else if (slot->registered && slot->max_message_bytes >= 0 && own > slot->max_message_bytes) {
        reason = AIOKQ_TOO_LONG;
        aiokq_sample_long(pool, transport, message.topic, message.topic_size, message.value,
                          message.value_size, arrival);
    }
    if (when_full == AIOKQ_WAIT && pool->held == 0)
        when_full = AIOKQ_FORCE; /* no message will make room: waiting frees nothing */
    if (reason < 0 &&
        (need > pool->max_bytes ||
         (when_full != AIOKQ_FORCE && (pool->used + need > pool->max_bytes ||
                                       aiokq_over_share(pool, slot, need))))) {
        if (need <= pool->max_bytes && pool->used + need > pool->max_bytes)
            aiokq_press(pool);
        else if (need <= pool->max_bytes && slot->registered)
            aiokq_mark_due(pool, slot, slot->held); /* the topic has its share: only that helps it */
        if (when_full == AIOKQ_WAIT && need <= pool->max_bytes) {
            aiokq_drop_filled(pool, filled);
            return 0;
        }
        reason = AIOKQ_NO_MEMORY;
    }
    if (reason < 0 && slot == NULL && pool->names >= pool->max_names &&
        transport == AIOKQ_FED && wanted == AIOKQ_WAIT) {
        aiokq_drop_filled(pool, filled);
        return 0; /* fed messages wait in the spool, so no topic is removed for them */
    }
    if (reason < 0 && own > AIOKQ_LARGE && filled == NULL) {
        if (!lacks) {
            /* The copy may take milliseconds. Then everything is decided anew. */
            aiokq_pool_unlock(pool);
            filled = aiokq_segment_of(&message);
            aiokq_pool_lock(pool);
            lacks = filled == NULL;
            goto again;
        }
        reason = AIOKQ_NO_MEMORY;
    }
    pool->received++;
    pool->received_bytes += size;
    if (slot != NULL)
        slot->received++;
    if (reason < 0 && slot != NULL && slot->registered && aiokq_limited(slot, mono - (wall - arrival)))
        reason = AIOKQ_RATE_LIMIT;
    if (reason < 0 && slot == NULL) {
        if (pool->names >= pool->max_names && !aiokq_evict(pool, wall)) {
            reason = AIOKQ_BAD_TOPIC;
            aiokq_sample_topic(pool, message.topic, message.topic_size, wall);
        } else {
            pool->outcome = -1;
            slot = aiokq_slot_new(pool, hash, message.topic, message.topic_size);
            made = slot != NULL && aiokq_name_add(pool, slot, sender);
            if (!made) {
                reason = AIOKQ_NO_MEMORY;
                if (slot != NULL)
                    aiokq_slot_free(pool, slot);
                slot = NULL;
            }
        }
    }
    if (reason < 0 && filled == NULL &&
        !aiokq_slot_fits(pool, slot, message.key_size, message.value_size)) {
        reason = AIOKQ_NO_MEMORY;
        if (made) {
            pool->names--;
            aiokq_slot_free(pool, slot);
            slot = NULL;
        }
    }
    if (reason >= 0) {
        aiokq_discard(pool, reason, transport, &message, message.value_size, arrival, slot, 1);
        goto counted;
    }
    if (made) {
        slot->received = 1;
        pool->last_slot = slot;
        aiokq_list_add(&pool->fresh, slot);
        aiokq_wake(pool);
    }
    row.timestamp = message.timestamp;
    row.arrival = arrival;
    row.sequence = sequence >= 0 ? sequence : pool->sequence++;
    row.partition_key = message.partition_key;
    row.keyed = (uint32_t)message.keyed;
    if (filled != NULL) {
        aiokq_segment_add_row(filled, &row, (uint32_t)message.key_size,
                              (uint32_t)message.value_size);
        aiokq_slot_append(slot, filled);
        filled = NULL;
    } else {
        aiokq_segment_add(slot->tail, &row, message.key, (uint32_t)message.key_size,
                          message.value, (uint32_t)message.value_size);
    }
    pool->used += need;
    pool->held++;
    slot->held++;
    slot->held_bytes += own + AIOKQ_MESSAGE_OVERHEAD;
    if (slot->registered) {
        aiokq_account(pool, slot, own, row.timestamp, arrival, slot->held, mono, wall);
    } else {
        pool->unresolved++;
        slot->largest = own > slot->largest ? own : slot->largest;
        aiokq_name_used(pool, slot);
    }
    aiokq_press_if_full(pool);
counted:
    aiokq_drop_filled(pool, filled);
    return 1;
}

/* The same for a message that arrives now. */
static inline int aiokq_accept(aiokq_pool *pool, const unsigned char *data, int64_t size,
                               int64_t mono, int64_t wall, int transport, uint32_t sender,
                               int when_full) {
    return aiokq_accept_at(pool, data, size, mono, wall, wall, transport, sender, when_full, -1);
}

/* Returns whether incomplete messages would use more than half of the pool if one of them, which is
 * charged `own` bytes, were charged `size` more. A single incomplete message may use all of the
 * pool. */
static inline int aiokq_partials_full(const aiokq_pool *pool, int64_t own, int64_t size) {
    return pool->partial > own && pool->partial + size > pool->max_bytes / 2;
}

/* Charges the beginning of a message, or takes the charge back; returns 0 if there is no room. */
static inline int aiokq_charge_partial(aiokq_pool *pool, int64_t size, int when_full) {
    if (size > 0 && when_full == AIOKQ_DISCARD && pool->used + size > pool->max_bytes)
        return 0;
    pool->used += size;
    pool->partial += size;
    if (size < 0)
        aiokq_memory_freed(pool);
    else
        aiokq_press_if_full(pool);
    return 1;
}

/* Returns whether an input that waits for memory has to wait. */
static inline int aiokq_crowded(const aiokq_pool *pool) {
    return pool->used >= pool->max_bytes && pool->held > 0;
}

/* Stores the messages in `size` bytes; returns the number of bytes of the messages that were stored
 * or discarded, or `size` after an impossible size of a message. */
static inline int64_t aiokq_feed(aiokq_pool *pool, const unsigned char *data, int64_t size,
                                 int64_t sequence, int replayed, int when_full, int64_t limit,
                                 int64_t arrival) {
    int64_t at = 0, locked = 0, mono, wall;
    aiokq_pool_lock(pool);
    aiokq_pool_now(pool, &mono, &wall);
    arrival = arrival < 0 || arrival > wall ? wall : arrival;
    while (size - at >= 4) {
        int64_t own = aiokq_big_i32(data + at);
        if (own < 4 || own - 4 > limit) {
            int64_t known = size - at < pool->sample_bytes ? size - at : pool->sample_bytes;
            aiokq_lost(pool, AIOKQ_MALFORMED, 4, AIOKQ_FED, data + at, known, wall);
            at = size;
            break;
        }
        if (own > size - at)
            break;
        if (!aiokq_accept_at(pool, data + at, own, mono, wall, arrival, AIOKQ_FED, 0, when_full,
                             sequence)) {
            pool->starved = 1;
            break;
        }
        pool->replayed += replayed;
        sequence += sequence >= 0;
        at += own;
        locked += own;
        if (locked > AIOKQ_MAPPED) {
            locked = 0;
            aiokq_pool_unlock(pool);
            aiokq_pool_lock(pool);
        }
    }
    aiokq_pool_unlock(pool);
    return at;
}

/* ---------------------------------------------------------------- for the event loop, locked */

/* Takes unregistered slots off the list of new ones, and copies their names; returns the number. */
static inline int aiokq_take_fresh(aiokq_pool *pool, aiokq_fresh *out, int64_t room) {
    int made = 0;
    while (made < room && pool->fresh.first != NULL) {
        aiokq_slot *slot = pool->fresh.first;
        aiokq_list_remove(&pool->fresh, slot);
        out[made].held = slot->held;
        out[made].size = slot->topic_size;
        memcpy(out[made].topic, slot->topic, (size_t)slot->topic_size);
        made++;
    }
    return made;
}

/* Sets the limits of a slot. */
static inline void aiokq_limit(aiokq_pool *pool, aiokq_slot *slot, const int64_t limits[6]) {
    int changed = slot->batch_messages != limits[0] || slot->batch_bytes != limits[1] ||
                  slot->batch_ms != limits[2];
    if (slot->rate_interval != limits[4] || slot->rate_most != limits[5])
        slot->window_began = 0;
    slot->batch_messages = limits[0];
    slot->batch_bytes = limits[1];
    slot->batch_ms = limits[2];
    slot->max_message_bytes = limits[3];
    slot->rate_interval = limits[4];
    slot->rate_most = limits[5];
    if (changed && slot->registered && slot->held)
        aiokq_mark_due(pool, slot, slot->held);
}

/* Memory of the rows `from` to `to`, without that of their keys. */
static inline size_t aiokq_row_bytes(const aiokq_segment *segment, int64_t from, int64_t to) {
    return aiokq_value_start(segment, to) - aiokq_value_start(segment, from) +
           (size_t)(to - from) * sizeof(aiokq_row);
}

/* Copies row `from` and all later rows to a new segment; `keys` is the total size of their keys. */
static inline aiokq_segment *aiokq_segment_rest(const aiokq_pool *pool,
                                                const aiokq_segment *segment, uint32_t from,
                                                size_t capacity, size_t keys) {
    aiokq_segment *made = aiokq_segment_new(pool->spares, capacity);
    if (made == NULL)
        return NULL;
    if (keys) {
        made->keys = (unsigned char *)malloc(keys);
        if (made->keys == NULL) {
            aiokq_segment_release(made);
            return NULL;
        }
        made->key_capacity = keys;
    }
    for (uint32_t n = from; n < segment->count; n++) {
        const aiokq_row *row = aiokq_row_at(segment, n);
        uint32_t key = aiokq_key_start(segment, n), value = aiokq_value_start(segment, n);
        aiokq_segment_add(made, row, keys ? segment->keys + key : NULL, row->key_end - key,
                          segment->data + value, row->value_end - value);
    }
    return made;
}

/* Discards the messages of a closed segment that are above the limits of its slot, and moves the
 * others together; returns how many are discarded. The mutex is released now and then. */
static inline int64_t aiokq_sift(aiokq_pool *pool, aiokq_slot *slot, aiokq_segment *segment,
                                 int64_t mono, int64_t wall) {
    uint32_t kept = segment->first;
    uint32_t value = aiokq_value_start(segment, kept), key = aiokq_key_start(segment, kept);
    uint32_t value_to = value, key_to = key;
    int64_t discarded = 0, locked = 0;
    for (uint32_t n = kept; n < segment->count; n++) {
        aiokq_row row = *aiokq_row_at(segment, n);
        uint32_t value_size = row.value_end - value, key_size = row.key_end - key;
        int64_t own = (int64_t)value_size + key_size, passed = row.arrival - wall;
        int reason = -1;
        locked += own + (int64_t)sizeof row;
        if (locked > AIOKQ_MAPPED) {
            locked = 0;
            aiokq_pool_unlock(pool);
            aiokq_pool_lock(pool);
        }
        if (slot->max_message_bytes >= 0 && own > slot->max_message_bytes)
            reason = AIOKQ_TOO_LONG;
        else if (aiokq_limited(slot, mono + (passed < 0 ? passed : 0)))
            reason = AIOKQ_RATE_LIMIT;
        if (reason >= 0) {
            slot->held--;
            slot->held_bytes -= own + AIOKQ_MESSAGE_OVERHEAD;
            aiokq_discard_held(pool, slot, &row, segment->keys + key, key_size,
                               segment->data + value, value_size, reason);
        } else if (kept != n) {
            if (value_size)
                memmove(segment->data + value_to, segment->data + value, value_size);
            if (key_size)
                memmove(segment->keys + key_to, segment->keys + key, key_size);
        }
        value = row.value_end;
        key = row.key_end;
        if (reason >= 0) {
            discarded++;
            continue;
        }
        value_to += value_size;
        key_to += key_size;
        row.value_end = value_to;
        row.key_end = key_to;
        *aiokq_row_at(segment, kept++) = row;
    }
    segment->count = kept;
    return discarded;
}

/* Applies the limits of a slot whose topic becomes registered to the messages that the slot holds.
 * The slot may hold the whole pool, and no input may wait for the whole pass, so the mutex is
 * released between two segments. Messages that arrive meanwhile are examined later in the same
 * pass. Returns the number of messages that are discarded. */
static inline int64_t aiokq_sift_all(aiokq_pool *pool, aiokq_slot *slot) {
    aiokq_segment **link = &slot->head, *segment, *before = NULL;
    int64_t mono, wall, discarded = 0;
    while ((segment = *link) != NULL) {
        aiokq_segment *gone = NULL, *made = NULL;
        size_t rest, keys;
        aiokq_pool_now(pool, &mono, &wall);
        segment->closed = 1; /* what arrives goes into another segment */
        discarded += aiokq_sift(pool, slot, segment, mono, wall);
        rest = aiokq_row_bytes(segment, segment->first, segment->count);
        keys = aiokq_key_start(segment, segment->count) - aiokq_key_start(segment, segment->first);
        if (rest && segment->capacity > AIOKQ_SMALLEST_SEGMENT && rest < segment->capacity / 2) {
            /* Else few messages would hold the memory of many that are gone. */
            aiokq_pool_unlock(pool);
            made = aiokq_segment_rest(pool, segment, segment->first, rest, keys);
            aiokq_pool_lock(pool);
        }
        if (rest == 0 || made != NULL) {
            gone = segment;
            if (made != NULL) {
                made->closed = 1;
                made->next = segment->next;
                segment = made;
            } else {
                segment = segment->next;
            }
            *link = segment;
            if (slot->tail == gone)
                slot->tail = made != NULL ? made : before;
            if (made == NULL)
                segment = before;
            gone->next = NULL;
        }
        before = segment;
        link = before == NULL ? &slot->head : &before->next;
        if (gone != NULL || *link != NULL) {
            aiokq_pool_unlock(pool);
            aiokq_segments_free(gone);
            aiokq_pool_lock(pool);
        }
    }
    if (slot->tail != NULL)
        slot->tail->closed = 0;
    return discarded;
}

/* Marks the topic of a slot as registered, and applies the limits to the messages that the slot
 * holds. The mutex may be released meanwhile. This is safe, because only the caller's thread takes
 * messages, and only this thread ends slots that are registered or that, like this slot, are in no
 * list. */
static inline void aiokq_resolve(aiokq_pool *pool, aiokq_slot *slot) {
    int64_t mono, wall, held = slot->held, discarded = 0;
    if (held)
        aiokq_end_unresolved(pool, slot);
    if ((slot->max_message_bytes >= 0 && slot->largest > slot->max_message_bytes) ||
        (slot->rate_interval > 0 && slot->rate_most >= 0))
        discarded = aiokq_sift_all(pool, slot);
    slot->registered = 1;
    pool->unresolved -= slot->held + discarded - held; /* what has arrived meanwhile */
    held = 0;
    aiokq_pool_now(pool, &mono, &wall);
    if (slot->held > AIOKQ_EVALUATED) {
        aiokq_mark_due(pool, slot, slot->held);
    } else {
        for (const aiokq_segment *one = slot->head; one != NULL; one = one->next) {
            for (uint32_t n = one->first; n < one->count; n++) {
                const aiokq_row *row = aiokq_row_at(one, n);
                aiokq_account(pool, slot, aiokq_span(one, n, n + 1), row->timestamp, row->arrival,
                              ++held, mono, wall);
            }
        }
    }
    aiokq_press_if_full(pool);
    aiokq_memory_freed(pool);
}

/* Makes the messages of each slot due whose deadline has passed. If aiokq_press() was called since
 * the last call, all messages become due. Returns the next deadline. */
static inline int64_t aiokq_due(aiokq_pool *pool, int64_t now) {
    pool->woken = pool->must_wake = 0;
    while (pool->heap_count && (pool->pressed || pool->heap[0]->deadline <= now)) {
        aiokq_slot *slot = pool->heap[0];
        aiokq_mark_due(pool, slot, slot->held);
    }
    pool->pressed = 0;
    pool->woken = pool->must_wake = 0;
    pool->armed = pool->heap_count ? pool->heap[0]->deadline : AIOKQ_NEVER;
    return pool->armed;
}

/* Takes slots off the list of those that became due; returns their number. */
static inline int aiokq_take_ready(aiokq_pool *pool, int32_t *numbers, int room) {
    int made = 0;
    while (made < room && pool->ready.first != NULL) {
        aiokq_slot *slot = pool->ready.first;
        aiokq_list_remove(&pool->ready, slot);
        numbers[made++] = slot->number;
    }
    return made;
}

/* Moves the rows from `from` on, which were not taken, to a new segment if they use at most as much
 * memory as the rows before them. In the old segment, these few messages would hold the memory of
 * many that are gone. The mutex is released while many bytes are copied; only the caller's thread
 * takes messages or ends slots. */
static inline void aiokq_move_rest(aiokq_pool *pool, aiokq_slot *slot, uint32_t from) {
    aiokq_segment *segment = slot->head, *made;
    size_t rest = aiokq_row_bytes(segment, from, segment->count);
    size_t keys = aiokq_key_start(segment, segment->count) - aiokq_key_start(segment, from);
    size_t gone = aiokq_row_bytes(segment, 0, from) + aiokq_key_start(segment, from);
    size_t capacity = segment->capacity;
    int apart = rest + keys > AIOKQ_COPIED;
    if (rest + keys > gone)
        return;
    capacity = capacity < pool->largest_segment ? capacity : pool->largest_segment;
    capacity = rest > capacity ? rest : capacity;
    if (apart) {
        segment->closed = 1; /* what an input stores meanwhile goes into another segment */
        aiokq_pool_unlock(pool);
    }
    made = aiokq_segment_rest(pool, segment, from, capacity, keys);
    if (apart) {
        aiokq_pool_lock(pool);
        segment->closed = 0;
    }
    if (made == NULL)
        return;
    made->next = segment->next;
    if (slot->tail == segment)
        slot->tail = made;
    slot->head = made;
    aiokq_segment_release(segment); /* what was taken holds it */
}

/* How many of `count` rows from `from` on are charged at most `max_bytes`; at least one. */
static inline int64_t aiokq_rows_within(const aiokq_segment *segment, int64_t from, int64_t count,
                                        int64_t max_bytes) {
    int64_t least = 1, most = count;
    while (least < most) {
        int64_t middle = least + (most - least + 1) / 2;
        if (aiokq_span(segment, from, from + middle) + middle * AIOKQ_MESSAGE_OVERHEAD <= max_bytes)
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

/* Takes the first messages that are due: rows `from` to `to` of the segment that is returned; NULL
 * if there are none. Together they are charged at most `max_bytes`, but at least one message is
 * taken; a `max_bytes` of 0 means no limit. The mutex may be released meanwhile. */
static inline aiokq_segment *aiokq_take(aiokq_pool *pool, aiokq_slot *slot, int64_t max_bytes,
                                        int64_t *from, int64_t *to) {
    aiokq_segment *segment = slot->head;
    int64_t count;
    if (slot->due == 0)
        return NULL;
    count = (int64_t)segment->count - segment->first;
    count = count < slot->due ? count : slot->due;
    if (max_bytes > 0)
        count = aiokq_rows_within(segment, segment->first, count, max_bytes);
    *from = segment->first;
    *to = segment->first + count;
    slot->due -= count;
    slot->held -= count;
    slot->held_bytes -= aiokq_span(segment, *from, *to) + count * AIOKQ_MESSAGE_OVERHEAD;
    pool->taken += count;
    if (pool->topic_share > 0)
        aiokq_memory_freed(pool); /* the topic holds less of its share */
    if (*to == segment->count) {
        slot->head = segment->next;
        if (slot->head == NULL) {
            /* The next segment is about as large as this one was filled. */
            size_t used = aiokq_row_bytes(segment, 0, segment->count);
            used += used / 4;
            slot->tail = NULL;
            slot->next_capacity = (uint32_t)(used > pool->largest_segment ? pool->largest_segment
                                             : used < AIOKQ_SMALLEST_SEGMENT
                                                 ? AIOKQ_SMALLEST_SEGMENT
                                                 : used);
        }
    }
    if (slot->due == 0)
        aiokq_list_remove(&pool->ready, slot);
    if (*to < segment->count) {
        segment->first = (uint32_t)*to;
        aiokq_segment_hold(segment);
        aiokq_move_rest(pool, slot, segment->first);
    }
    return segment;
}

/* Takes the first messages of a topic that is not registered; the last ones end its slot. */
static inline aiokq_segment *aiokq_take_unresolved(aiokq_pool *pool, aiokq_slot *slot,
                                                   int64_t *from, int64_t *to) {
    aiokq_segment *segment = slot->head;
    *from = segment->first;
    *to = segment->count;
    slot->head = segment->next;
    slot->held -= *to - *from;
    slot->held_bytes -= aiokq_span(segment, *from, *to) + (*to - *from) * AIOKQ_MESSAGE_OVERHEAD;
    pool->unresolved -= *to - *from;
    pool->taken += *to - *from;
    if (slot->head == NULL) {
        slot->tail = NULL;
        aiokq_end_unresolved(pool, slot);
        aiokq_slot_free(pool, slot);
    }
    return segment;
}

typedef struct {
    const unsigned char *topic; /* of a registered topic: valid until the slot is freed */
    int32_t topic_size;
    int32_t number;
    int64_t numbers[9];
} aiokq_report;

/* Returns whether a slot is in the report of all topics: if its topic is registered, or has
 * discards. Other topics have nothing to report, and a program may invent any number of them. */
static inline int aiokq_reported(const aiokq_slot *slot) {
    return slot->registered || slot->too_long || slot->rate_limited || slot->no_memory;
}

/* Writes the counts of a topic. */
static inline void aiokq_report_topic(const aiokq_slot *slot, aiokq_report *report) {
    report->topic = slot->topic;
    report->topic_size = slot->topic_size;
    report->number = slot->number;
    memcpy(report->numbers, &slot->received, sizeof report->numbers);
}

/* Writes the counts of all topics that are reported; returns their number, or -1 if there are more than
 * `room`, or more than `name_room` of them are not registered. Inputs may end a topic that is not
 * registered as soon as the mutex is released, so its name is copied. */
static inline int32_t aiokq_report_topics(aiokq_pool *pool, aiokq_report *reports, int32_t room,
                                          unsigned char *names, int32_t name_room) {
    int32_t made = 0, named = 0;
    for (int32_t n = 0; n < pool->slot_count; n++) {
        const aiokq_slot *slot = pool->slots[n];
        if (n + 8 < pool->slot_count && pool->slots[n + 8] != NULL) {
            __builtin_prefetch(pool->slots[n + 8]);
            __builtin_prefetch((const char *)pool->slots[n + 8] + 64);
        }
        if (slot == NULL || !aiokq_reported(slot))
            continue;
        if (made == room || (!slot->registered && named == name_room))
            return -1;
        aiokq_report_topic(slot, reports + made);
        if (!slot->registered) {
            unsigned char *name = names + (size_t)named++ * AIOKQ_TOPIC_BYTES;
            memcpy(name, slot->topic, (size_t)slot->topic_size);
            reports[made].topic = name;
        }
        made++;
    }
    return made;
}

static inline void aiokq_new_window(aiokq_pool *pool) {
    for (int32_t n = 0; n < pool->slot_count; n++) {
        if (pool->slots[n] != NULL) {
            pool->slots[n]->earliest = AIOKQ_NEVER;
            pool->slots[n]->latest = -AIOKQ_NEVER;
        }
    }
}

static inline aiokq_ring *aiokq_ring_of(aiokq_pool *pool, int reason, int transport) {
    return reason == AIOKQ_BAD_TOPIC ? &pool->bad_topics : &pool->samples[reason][transport];
}

/* Frees what the pool holds; the counts stay. */
static inline void aiokq_pool_clear(aiokq_pool *pool) {
    pool->max_bytes = pool->pending = 0; /* an input that still runs finds no room */
    for (int32_t n = 0; n < pool->slot_count; n++) {
        if (pool->slots[n] != NULL) {
            aiokq_segments_free(pool->slots[n]->head);
            free(pool->slots[n]);
        }
    }
    free(pool->slots);
    free(pool->free_numbers);
    free(pool->heap);
    free(pool->table);
    free(pool->names_of);
    pool->names_of = NULL;
    pool->slots = NULL;
    pool->free_numbers = NULL;
    pool->heap = NULL;
    pool->table = NULL;
    pool->slot_count = pool->slot_room = pool->free_count = pool->heap_count = 0;
    pool->table_size = pool->table_used = 0;
    pool->last_slot = NULL;
    pool->ready.first = pool->ready.last = pool->fresh.first = pool->fresh.last = NULL;
    while (pool->refused_first != NULL) {
        aiokq_refused *next = pool->refused_first->next;
        free(pool->refused_first);
        pool->refused_first = next;
    }
    pool->refused_last = NULL;
    aiokq_spares_close(pool->spares);
}

/* Copies a ring; `data` has room for all its samples. */
static inline void aiokq_ring_copy(const aiokq_pool *pool, const aiokq_ring *ring, aiokq_ring *copy,
                                   unsigned char *data) {
    *copy = *ring;
    copy->data = data;
    if (ring->data != NULL)
        memcpy(data, ring->data, (size_t)(AIOKQ_SAMPLES * pool->sample_bytes));
}

static inline void aiokq_ring_clear(aiokq_ring *ring) {
    free(ring->data);
    ring->data = NULL;
    ring->count = ring->oldest = 0;
}

static inline void aiokq_samples_clear(aiokq_pool *pool) {
    for (int reason = 0; reason < AIOKQ_BAD_TOPIC; reason++)
        for (int transport = 0; transport < AIOKQ_TRANSPORTS; transport++)
            aiokq_ring_clear(&pool->samples[reason][transport]);
    aiokq_ring_clear(&pool->bad_topics);
}

static inline void aiokq_pool_free(aiokq_pool *pool) {
    aiokq_pool_clear(pool);
    aiokq_spares_drop(pool->spares);
    aiokq_samples_clear(pool);
    free(pool->finished);
    pthread_cond_destroy(&pool->memory);
    pthread_mutex_destroy(&pool->mutex);
}

/* ---------------------------------------------------------------- columns of what was taken */

typedef struct {
    int64_t empty_keys;
    int64_t empty_values;
    int64_t keyed;
    int64_t replaced;   /* timestamps outside the limits */
    int64_t text_bytes; /* those timestamps as text */
    int64_t oldest;     /* smallest of timestamps and arrivals */
    int64_t earliest;   /* smallest timestamp */
    int64_t latest;
} aiokq_survey;

#define AIOKQ_DIGITS 21 /* a 64-bit number as text, with its sign and an end */

static inline void aiokq_survey_rows(const aiokq_segment *segment, int64_t from, int64_t to,
                                   int64_t earliest, int64_t latest, aiokq_survey *found) {
    memset(found, 0, sizeof *found);
    found->oldest = found->earliest = AIOKQ_NEVER;
    found->latest = from < to ? INT64_MIN : -AIOKQ_NEVER;
    for (int64_t n = from; n < to; n++) {
        const aiokq_row *row = aiokq_row_at(segment, n);
        found->empty_keys += row->key_end == aiokq_key_start(segment, n);
        found->empty_values += row->value_end == aiokq_value_start(segment, n);
        found->keyed += row->keyed;
        if (row->timestamp < earliest || row->timestamp > latest) {
            char text[AIOKQ_DIGITS];
            found->replaced++;
            found->text_bytes += snprintf(text, sizeof text, "%lld", (long long)row->timestamp);
        }
        found->earliest = row->timestamp < found->earliest ? row->timestamp : found->earliest;
        found->latest = row->timestamp > found->latest ? row->timestamp : found->latest;
        found->oldest = row->arrival < found->oldest ? row->arrival : found->oldest;
    }
    found->oldest = found->earliest < found->oldest ? found->earliest : found->oldest;
}

/* Writes the offsets of keys or values, and if `bits` is given, which of them are not empty. */
static inline void aiokq_fill_offsets(const aiokq_segment *segment, int64_t from, int64_t to,
                                      int keys, int32_t *offsets, unsigned char *bits) {
    uint32_t base = keys ? aiokq_key_start(segment, from) : aiokq_value_start(segment, from);
    offsets[0] = 0;
    if (bits != NULL)
        memset(bits, 0, (size_t)((to - from + 7) / 8));
    for (int64_t n = from; n < to; n++) {
        const aiokq_row *row = aiokq_row_at(segment, n);
        int64_t at = n - from;
        offsets[at + 1] = (int32_t)((keys ? row->key_end : row->value_end) - base);
        if (bits != NULL && offsets[at + 1] != offsets[at])
            bits[at >> 3] |= (unsigned char)(1 << (at & 7));
    }
}

static inline void aiokq_fill_times(const aiokq_segment *segment, int64_t from, int64_t to,
                                    int64_t earliest, int64_t latest, int64_t *times) {
    for (int64_t n = from; n < to; n++) {
        const aiokq_row *row = aiokq_row_at(segment, n);
        int kept = row->timestamp >= earliest && row->timestamp <= latest;
        times[n - from] = (kept ? row->timestamp : row->arrival) * 1000;
    }
}

static inline void aiokq_fill_partitions(const aiokq_segment *segment, int64_t from, int64_t to,
                                         uint32_t partitions, const unsigned char *usable,
                                         int32_t *numbers, unsigned char *bits) {
    memset(bits, 0, (size_t)((to - from + 7) / 8));
    for (int64_t n = from; n < to; n++) {
        const aiokq_row *row = aiokq_row_at(segment, n);
        int64_t at = n - from;
        uint32_t first, chosen;
        numbers[at] = 0;
        if (!row->keyed)
            continue;
        bits[at >> 3] |= (unsigned char)(1 << (at & 7));
        first = chosen = row->partition_key % partitions;
        for (uint32_t tried = 0; usable != NULL && !usable[chosen] && tried < partitions; tried++)
            chosen = chosen + 1 < partitions ? chosen + 1 : 0;
        numbers[at] = (int32_t)(usable == NULL || usable[chosen] ? chosen : first);
    }
}

/* Writes a header for each timestamp that is replaced. */
static inline void aiokq_fill_headers(const aiokq_segment *segment, int64_t from, int64_t to,
                                      int64_t earliest, int64_t latest, int32_t *rows,
                                      int32_t *text_offsets, char *texts) {
    int32_t count = 0, used = 0;
    rows[0] = text_offsets[0] = 0;
    for (int64_t n = from; n < to; n++) {
        const aiokq_row *row = aiokq_row_at(segment, n);
        if (row->timestamp < earliest || row->timestamp > latest) {
            char text[AIOKQ_DIGITS];
            int size = snprintf(text, sizeof text, "%lld", (long long)row->timestamp);
            memcpy(texts + used, text, (size_t)size);
            used += size;
            text_offsets[++count] = used;
        }
        rows[n - from + 1] = count;
    }
}

/* Writes the ends of the batches that the limits make; returns their number. */
static inline int64_t aiokq_batch_ends(const aiokq_segment *segment, int64_t from, int64_t to,
                                       int64_t messages, int64_t size, int64_t *ends) {
    int64_t made = 0, count = 0, total = 0;
    for (int64_t n = from; n < to; n++) {
        int64_t own = aiokq_span(segment, n, n + 1);
        own = own ? own : 1;
        if (size > 0 && count && (own >= size || total + own > size)) {
            ends[made++] = n - from;
            count = total = 0;
        }
        count++;
        total += own;
        if ((messages > 0 && count >= messages) || (size > 0 && total >= size)) {
            ends[made++] = n - from + 1;
            count = total = 0;
        }
    }
    if (count)
        ends[made++] = to - from;
    return made;
}

#endif
