/* Runs the gateway's headers without Python, under sanitizers: test_gateway_fuzz.py compiles it.
 *
 *     gateway_fuzz bytes SEED ROUNDS    random and mutated messages, fed and as a stream in pieces;
 *                                       in every second round, allocations fail now and then
 *     gateway_fuzz threads MESSAGES     inputs with real sockets, senders, and a loop that takes
 *     gateway_fuzz spool MESSAGES       the same with a spool, and a loop that deletes its segments
 *     gateway_fuzz partials             an input that waits for incomplete messages of another one
 *     gateway_fuzz ends                 two threads that end an input while a program writes
 *     gateway_fuzz locks                large messages; checks how much is copied under the mutex
 *     gateway_fuzz spares               segments that are used again
 *
 * It ends with 0 if the counts add up and no sanitizer complained. */
#define _GNU_SOURCE
#include <stdint.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t state;
static uint32_t failures; /* one of so many allocations of the headers fails; 0: none */

static uint32_t chance(uint32_t below) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % below);
}

static int fails(void) {
    return failures && chance(failures) == 0;
}

static inline void *fuzz_malloc(size_t size) {
    return fails() ? NULL : malloc(size);
}

static inline void *fuzz_calloc(size_t count, size_t size) {
    return fails() ? NULL : calloc(count, size);
}

static inline void *fuzz_realloc(void *block, size_t size) {
    return fails() ? NULL : realloc(block, size);
}

static inline void *fuzz_mmap(void *at, size_t size, int allowed, int flags, int fd, off_t from) {
    return fails() ? MAP_FAILED : mmap(at, size, allowed, flags, fd, from);
}

/* Bytes that are copied or freed while the mutex of a pool is held; only in a single thread. */
static struct {
    pthread_mutex_t *mutex;
    int held;
    size_t bytes;
    size_t most;
} watched;

static inline void fuzz_touched(size_t size) {
    if (!watched.held)
        return;
    watched.bytes += size;
    watched.most = watched.bytes > watched.most ? watched.bytes : watched.most;
}

static inline void *fuzz_memcpy(void *to, const void *from, size_t size) {
    fuzz_touched(size);
    return memcpy(to, from, size);
}

static inline void *fuzz_memmove(void *to, const void *from, size_t size) {
    fuzz_touched(size);
    return memmove(to, from, size);
}

static inline void fuzz_free(void *block) {
    if (watched.held)
        fuzz_touched(block == NULL ? 0 : malloc_usable_size(block));
    free(block);
}

static inline int fuzz_munmap(void *at, size_t size) {
    fuzz_touched(size);
    return munmap(at, size);
}

static inline int fuzz_mutex_lock(pthread_mutex_t *mutex) {
    int error = pthread_mutex_lock(mutex);
    if (watched.mutex == mutex) {
        watched.held = 1;
        watched.bytes = 0;
    }
    return error;
}

static inline int fuzz_mutex_unlock(pthread_mutex_t *mutex) {
    if (watched.mutex == mutex)
        watched.held = 0;
    return pthread_mutex_unlock(mutex);
}

#define AIOKQ_MAPPED 1000
#define AIOKQ_LARGE 3000
#define AIOKQ_COPIED 500
#define AIOKQ_CROWDED_MS 2000
#define memcpy fuzz_memcpy
#define memmove fuzz_memmove
#define free fuzz_free
#define munmap fuzz_munmap
#define pthread_mutex_lock fuzz_mutex_lock
#define pthread_mutex_unlock fuzz_mutex_unlock
#define malloc fuzz_malloc
#define calloc fuzz_calloc
#define realloc fuzz_realloc
#define mmap fuzz_mmap
#include "aiokq/fastpath/gateway/intake.h"
#undef malloc
#undef calloc
#undef realloc
#undef mmap
#undef memcpy
#undef memmove
#undef free
#undef munmap
#undef pthread_mutex_lock
#undef pthread_mutex_unlock

#include <dirent.h>
#include <sys/un.h>

#define CHECK(what)                                                                             \
    do {                                                                                        \
        if (!(what)) {                                                                          \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                          \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static void put(unsigned char *at, uint64_t value, int size) {
    for (int n = 0; n < size; n++)
        at[n] = (unsigned char)(value >> (8 * (size - 1 - n)));
}

/* Numbers at which programs fail. */
static uint64_t odd_number(void) {
    static const int64_t odd[] = {0, 1, 2, 3, 4, 7, 8, 255, 256, 257, 32767, 32768, 65535, 65536,
                                  INT32_MAX, INT32_MIN, -1, -2, INT64_MAX, INT64_MIN};
    return (uint64_t)odd[chance(sizeof odd / sizeof *odd)] + chance(3) - 1;
}

/* Writes a message, mostly a correct one, and mutates some; returns its size. */
static int64_t make(unsigned char *at) {
    int keyed = (int)chance(2);
    uint32_t topic = chance(10) ? 1 + chance(3) : chance(300), key = chance(4) ? chance(9) : chance(3000);
    uint32_t value = chance(4) ? chance(40) : chance(20000);
    unsigned char *start = at;
    int64_t size;
    put(at + 4, keyed ? 257 : 256, 2);
    put(at + 6, 0, 4);
    at += 10;
    if (keyed) {
        put(at, odd_number(), 4);
        at += 4;
    }
    put(at, topic, 2);
    at += 2;
    for (uint32_t n = 0; n < topic; n++)
        *at++ = chance(30) ? (unsigned char)('a' + chance(3)) : (unsigned char)chance(256);
    put(at, chance(2) ? UINT64_C(1700000000000) + chance(2000) : odd_number(), 8);
    put(at + 8, key, 4);
    at += 12;
    memset(at, 'k', key);
    at += key;
    put(at, value, 4);
    at += 4;
    memset(at, 'v', value);
    at += value;
    size = at - start;
    put(start, (uint64_t)size, 4);
    if (chance(4) == 0) {
        int changes = 1 + (int)chance(3);
        while (changes--) {
            uint32_t where = chance(chance(2) ? 30 : (uint32_t)size);
            int width = 1 << chance(4);
            if (where + (uint32_t)width <= (uint32_t)size)
                put(start + where, chance(2) ? odd_number() : chance(UINT32_MAX), width);
        }
        if (chance(2))
            put(start, (uint64_t)size, 4); /* well framed at least */
    }
    return size;
}

static void check_books(aiokq_pool *pool, int64_t released) {
    int64_t discarded = 0;
    for (int n = 0; n < AIOKQ_REASONS; n++)
        discarded += pool->discarded[n];
    CHECK(pool->received == discarded + pool->held + released);
    CHECK(pool->used >= 0 && pool->partial >= 0 && pool->held >= 0 && pool->taken >= 0);
}

/* Reads everything that was taken, as the columns do. */
static void use(aiokq_segment *segment, int64_t from, int64_t to) {
    int64_t count = to - from, most = 1 + chance(5), all[3], *times, *ends;
    aiokq_survey found;
    int32_t *offsets = (int32_t *)malloc(4 * (size_t)(count + 1)), *more;
    unsigned char *bits = (unsigned char *)malloc((size_t)(count + 7) / 8 + 1), usable[7];
    volatile unsigned char sum = 0;
    aiokq_segment *part;
    aiokq_survey_rows(segment, from, to, 0, INT64_MAX / 1000, &found);
    aiokq_fill_offsets(segment, from, to, 0, offsets, bits);
    for (int32_t n = 0; n < offsets[count]; n++)
        sum ^= segment->data[aiokq_value_start(segment, from) + (uint32_t)n];
    aiokq_fill_offsets(segment, from, to, 1, offsets, NULL);
    for (int32_t n = 0; n < offsets[count]; n++)
        sum ^= segment->keys[aiokq_key_start(segment, from) + (uint32_t)n];
    times = (int64_t *)malloc(8 * (size_t)count);
    aiokq_fill_times(segment, from, to, 0, INT64_MAX / 1000, times);
    for (int n = 0; n < 7; n++)
        usable[n] = (unsigned char)chance(2);
    aiokq_fill_partitions(segment, from, to, 7, chance(2) ? usable : NULL, offsets, bits);
    for (int64_t n = 0; n < count; n++)
        CHECK(offsets[n] >= 0 && offsets[n] < 7);
    if (found.replaced) {
        char *texts = (char *)malloc((size_t)found.text_bytes);
        more = (int32_t *)malloc(4 * (size_t)(found.replaced + 1));
        aiokq_fill_headers(segment, from, to, 0, INT64_MAX / 1000, offsets, more, texts);
        CHECK(offsets[count] == found.replaced && more[found.replaced] == found.text_bytes);
        free(more);
        free(texts);
    }
    ends = (int64_t *)malloc(16 * (size_t)count + 8);
    CHECK(aiokq_batch_ends(segment, from, to, most, most * 100, ends) <= count);
    all[0] = chance((uint32_t)count);
    all[1] = chance((uint32_t)count);
    all[2] = count - 1;
    part = aiokq_segment_select(segment, from, all, 3);
    CHECK(part == NULL ? failures : part->count == 3);
    if (part != NULL)
        aiokq_segment_release(part);
    free(ends);
    free(times);
    free(bits);
    free(offsets);
    (void)sum;
}

/* Does what the event loop does, in any order; returns the number of released messages. */
static int64_t loop_turn(aiokq_pool *pool) {
    int64_t released = 0, from, to, charge;
    aiokq_segment *segment;
    aiokq_slot *slot = NULL;
    if (pool->slot_count)
        slot = pool->slots[chance((uint32_t)pool->slot_count)];
    if (slot == NULL)
        return 0;
    if (!slot->registered) {
        int64_t limits[6] = {chance(3) ? 0 : 1 + chance(20), chance(3) ? 0 : 1 + chance(5000),
                             chance(2) ? -1 : (int64_t)chance(50), chance(2) ? -1 : (int64_t)chance(9000),
                             chance(3) ? 0 : 100, chance(9)};
        switch (chance(3)) {
        case 0:
            aiokq_limit(pool, slot, limits);
            aiokq_resolve(pool, slot);
            break;
        case 1:
            segment = aiokq_take_unresolved(pool, slot, &from, &to);
            use(segment, from, to);
            charge = aiokq_span(segment, from, to) + (to - from) * AIOKQ_MESSAGE_OVERHEAD;
            pool->used -= charge;
            pool->held -= to - from;
            pool->taken -= to - from;
            released += to - from;
            aiokq_segment_release(segment);
            break;
        default:
            if (slot->listed)
                aiokq_list_remove(&pool->fresh, slot);
        }
        return released;
    }
    if (chance(20) == 0) {
        aiokq_table_remove(pool, slot);
        aiokq_mark_due(pool, slot, slot->held);
    }
    if (chance(4) == 0)
        aiokq_mark_due(pool, slot, slot->held);
    pool->fixed_mono += chance(20);
    aiokq_due(pool, pool->fixed_mono);
    if (chance(2)) {
        int32_t numbers[3];
        int made = aiokq_take_ready(pool, numbers, 3);
        for (int n = 0; n < made; n++)
            CHECK(pool->slots[numbers[n]]->due > 0);
    }
    for (int n = (int)chance(4); n > 0; n--) {
        segment = aiokq_take(pool, slot, chance(2) ? 0 : 1 + chance(3000), &from, &to);
        if (segment == NULL) {
            if (!slot->known) {
                aiokq_slot_free(pool, slot);
            }
            break;
        }
        use(segment, from, to);
        charge = aiokq_span(segment, from, to) + (to - from) * AIOKQ_MESSAGE_OVERHEAD;
        pool->used -= charge;
        pool->held -= to - from;
        pool->taken -= to - from;
        released += to - from;
        aiokq_rest_if_empty(pool, pool->held);
        aiokq_segment_release(segment);
    }
    return released;
}

/* ---------------------------------------------------------------- the spool */

static uint32_t sum_of(uint32_t crc, const unsigned char *at, size_t size) {
    for (size_t n = 0; n < size; n++)
        crc = crc * 31 + at[n];
    return crc;
}

static void spool_make(aiokq_spool *spool, const char *directory, int64_t max_bytes,
                       int64_t segment_bytes, int sync) {
    CHECK(aiokq_spool_make(spool, directory, sum_of));
    spool->max_bytes = max_bytes;
    spool->segment_bytes = segment_bytes;
    spool->sync = sync;
}

/* Reads a segment and deletes it; returns the number of its messages. */
static int64_t read_segment(const char *path) {
    FILE *file = fopen(path, "rb");
    int64_t size, at = AIOKQ_SPOOL_HEADER, messages = 0;
    unsigned char *data;
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    size = ftell(file);
    data = (unsigned char *)malloc((size_t)size);
    rewind(file);
    CHECK(size >= AIOKQ_SPOOL_HEADER && fread(data, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    while (at < size) {
        int64_t own = aiokq_spool_frame(data + at, size - at, sum_of), end = at + own;
        int64_t held = aiokq_big_u32(data + at + 12);
        CHECK(own > 0);
        messages += held;
        for (at += AIOKQ_SPOOL_FRAME; at < end; held--) {
            aiokq_message message;
            CHECK(aiokq_parse(data + at, aiokq_big_i32(data + at), &message) < 0);
            at += aiokq_big_i32(data + at);
        }
        CHECK(held == 0 && at == end);
    }
    free(data);
    CHECK(unlink(path) == 0);
    return messages;
}

/* Reads and deletes all segments; returns the number of their messages. */
static int64_t spool_messages(const char *directory) {
    DIR *listing = opendir(directory);
    struct dirent *entry;
    int64_t messages = 0;
    CHECK(listing != NULL);
    while ((entry = readdir(listing)) != NULL) {
        char path[PATH_MAX];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        messages += read_segment(path);
    }
    closedir(listing);
    return messages;
}

static void fuzz_bytes(uint64_t seed, int64_t rounds) {
    unsigned char *room = (unsigned char *)malloc(1 << 20);
    char directory[] = "/tmp/aiokq-fuzz-XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    state = seed;
    while (rounds--) {
        aiokq_spool spool;
        aiokq_pool pool;
        aiokq_intake intake;
        aiokq_connection *connection = NULL;
        int64_t released = 0;
        failures = rounds % 2 ? 2 + chance(20) : 0;
        while (!aiokq_pool_make(&pool, 1000 + chance(200000), -1, seed))
            continue;
        pool.sample_bytes = chance(3) ? 256 : chance(20);
        pool.max_names = chance(3) ? 100 : chance(4);
        pool.refused_bytes = chance(2) ? 0 : chance(5000);
        pool.refused_reasons = chance(UINT32_MAX) & 0x1ff;
        pool.refused_whole = chance(UINT32_MAX) & 0x1ff;
        pool.refused_prefix = chance(2) ? -1 : (int64_t)chance(100);
        pool.refused_rate = chance(2) ? 0 : chance(50);
        pool.whole_rate = chance(2) ? 0 : chance(50);
        pool.fixed_clock = 1;
        pool.fixed_mono = 1000;
        pool.fixed_wall = 1700000000000;
        memset(&intake, 0, sizeof intake);
        intake.pool = &pool;
        intake.transport = 1 + (int)chance(2);
        intake.limit = chance(2) ? 65536 : chance(30000) + 1;
        intake.block = (int)chance(2);
        intake.stopping = intake.block; /* a blocking input would wait for ever */
        pool.spooled = (int)chance(2);
        if (chance(2)) {
            spool_make(&spool, directory, 1 + chance(200000), chance(20000) + 1, (int)chance(3));
            intake.spool = &spool;
        }
        for (int step = 0; step < 300; step++) {
            int64_t size = 0, at = 0;
            unsigned char *exact;
            for (int n = 1 + (int)chance(8); n > 0; n--)
                size += make(room + size);
            if (chance(5) == 0)
                size = chance((uint32_t)size + 1); /* the end of a message is missing */
            exact = (unsigned char *)malloc((size_t)size + (size == 0));
            memcpy(exact, room, (size_t)size);
            if (chance(2)) {
                int64_t read = aiokq_feed(&pool, exact, size, chance(2) ? -1 : 7, (int)chance(2),
                                          chance(2) ? AIOKQ_WAIT : AIOKQ_DISCARD, intake.limit,
                                          chance(2) ? -1 : (int64_t)chance(1000000));
                CHECK(read >= 0 && read <= size);
            } else {
                while (at < size) {
                    int64_t part = 1 + chance(chance(2) ? 8 : 30000);
                    unsigned char *piece;
                    part = part < size - at ? part : size - at;
                    piece = (unsigned char *)malloc((size_t)part);
                    memcpy(piece, exact + at, (size_t)part);
                    at += part;
                    if (connection == NULL) {
                        while (connection == NULL)
                            connection = aiokq_connection_new();
                        aiokq_connection_begin(&intake, connection);
                    }
                    if (!aiokq_connection_data(&intake, connection, piece, part) || chance(300) == 0) {
                        aiokq_connection_end(&intake, connection);
                        connection = NULL;
                    }
                    free(piece);
                }
            }
            free(exact);
            aiokq_pool_lock(&pool);
            released += loop_turn(&pool);
            aiokq_pool_unlock(&pool);
            check_books(&pool, released);
        }
        if (connection != NULL)
            aiokq_connection_end(&intake, connection);
        CHECK(pool.partial == 0 && intake.counts.connections == 0);
        check_books(&pool, released);
        if (intake.spool != NULL) {
            CHECK(intake.piece_count == 0 && intake.owned == NULL);
            CHECK(spool.appended == spool_messages(directory));
            aiokq_spool_free(&spool);
        }
        aiokq_pool_free(&pool);
    }
    rmdir(directory);
    free(room);
}

/* ---------------------------------------------------------------- the mutex */

/* Writes a message of the topic "t" whose value has `value` bytes; returns its size. */
static int64_t make_large(unsigned char *at, int64_t value) {
    int64_t size = 4 + 6 + 2 + 1 + 8 + 4 + 4 + value;
    memset(at, 0, (size_t)size);
    put(at, (uint64_t)size, 4);
    put(at + 4, 256, 2);
    put(at + 10, 1, 2);
    at[12] = 't';
    put(at + 25, (uint64_t)value, 4);
    for (int64_t n = 0; n < value; n++)
        at[29 + n] = (unsigned char)(n * 31 >> 5);
    return size;
}

/* Takes the messages that are due and compares their values; returns their number. */
static int64_t take_large(aiokq_pool *pool, const unsigned char *sent, int64_t max_bytes) {
    int64_t taken = 0, from, to;
    aiokq_segment *segment;
    aiokq_slot *slot;
    aiokq_pool_lock(pool);
    slot = aiokq_slot_of(pool, 0);
    CHECK(slot != NULL);
    segment = aiokq_take(pool, slot, max_bytes, &from, &to);
    aiokq_pool_unlock(pool);
    if (segment == NULL)
        return 0;
    for (int64_t n = from; n < to; n++) {
        uint32_t start = aiokq_value_start(segment, n), size = aiokq_row_at(segment, n)->value_end - start;
        CHECK(memcmp(segment->data + start, sent + 29, size) == 0);
        taken++;
    }
    aiokq_pool_lock(pool);
    pool->used -= aiokq_span(segment, from, to) + taken * AIOKQ_MESSAGE_OVERHEAD;
    pool->held -= taken;
    pool->taken -= taken;
    aiokq_pool_unlock(pool);
    aiokq_segment_release(segment);
    return taken;
}

/* Whatever size a message has, little is copied or freed each time that the mutex is taken. */
static void check_locks(void) {
    enum { VALUE = 16 * 1024 * 1024 - 100, SMALL = 1000, COUNT = 300 };
    unsigned char *message = (unsigned char *)malloc(VALUE + 64);
    int64_t size = make_large(message, VALUE), limits[6] = {0, 0, -1, -1, 0, -1}, found = 0;
    aiokq_connection *connection;
    aiokq_intake intake;
    aiokq_pool pool;
    CHECK(aiokq_pool_make(&pool, 1 << 27, -1, 1));
    pool.sample_bytes = 256;
    pool.max_names = 10;
    pool.refused_bytes = 1 << 27;
    pool.refused_reasons = pool.refused_whole = 1 << AIOKQ_TOO_LONG;
    memset(&intake, 0, sizeof intake);
    intake.pool = &pool;
    intake.transport = 1;
    intake.limit = VALUE + 64;
    watched.mutex = &pool.mutex;
    /* The message of a connection, of which the topic is not known yet, and one that is fed. */
    connection = aiokq_connection_new();
    aiokq_connection_begin(&intake, connection);
    for (int64_t at = 0; at < size; at += AIOKQ_READ_BYTES)
        CHECK(aiokq_connection_data(&intake, connection, message + at,
                                    size - at < AIOKQ_READ_BYTES ? size - at : AIOKQ_READ_BYTES));
    CHECK(aiokq_feed(&pool, message, size, -1, 0, AIOKQ_DISCARD, intake.limit, -1) == size);
    aiokq_pool_lock(&pool);
    limits[4] = limits[5] = 1000; /* a limit of the rate: the messages are looked at one by one */
    aiokq_limit(&pool, pool.slots[0], limits);
    aiokq_resolve(&pool, pool.slots[0]);
    aiokq_pool_unlock(&pool);
    limits[4] = 0;
    limits[5] = -1;
    while (take_large(&pool, message, 0))
        found++;
    CHECK(found == 2 && pool.used == 0);
    /* A batch that ends in the middle of a segment: the rest is moved. */
    size = make_large(message, SMALL);
    for (int n = 0; n < COUNT; n++)
        CHECK(aiokq_feed(&pool, message, size, -1, 0, AIOKQ_DISCARD, intake.limit, -1) == size);
    for (found = 0; found < COUNT; found += take_large(&pool, message, 200 * SMALL))
        continue;
    CHECK(pool.used == 0 && take_large(&pool, message, 0) == 0);
    /* The backlog of a topic that becomes known, of which each second message is too long. */
    for (int n = 0; n < 10 * COUNT; n++) {
        size = make_large(message, n % 2 ? SMALL : SMALL / 2);
        message[12] = 'u';
        CHECK(aiokq_feed(&pool, message, size, -1, 0, AIOKQ_DISCARD, intake.limit, -1) == size);
    }
    CHECK(pool.unresolved == 10 * COUNT && pool.slots[1] != NULL && !pool.slots[1]->registered);
    limits[3] = SMALL - 1;
    aiokq_pool_lock(&pool);
    pool.refused_reasons = 0;
    aiokq_limit(&pool, pool.slots[1], limits);
    aiokq_resolve(&pool, pool.slots[1]);
    pool.refused_reasons = pool.refused_whole;
    CHECK(pool.unresolved == 0 && pool.held == 5 * COUNT && pool.slots[1]->held == 5 * COUNT);
    CHECK(pool.discarded[AIOKQ_TOO_LONG] == 5 * COUNT);
    CHECK(pool.used == 5 * COUNT * (SMALL / 2 + AIOKQ_MESSAGE_OVERHEAD));
    for (const aiokq_segment *one = pool.slots[1]->head; one != NULL; one = one->next)
        for (int64_t n = one->first; n < one->count; n++)
            CHECK(memcmp(one->data + aiokq_value_start(one, n), message + 29, SMALL / 2) == 0);
    pool.used = pool.held = 0; /* the slot keeps them */
    aiokq_pool_unlock(&pool);
    /* A message that is too long becomes a dead letter, and one is cut off. */
    limits[3] = 1000;
    aiokq_pool_lock(&pool);
    aiokq_limit(&pool, pool.slots[0], limits);
    aiokq_pool_unlock(&pool);
    size = make_large(message, VALUE);
    CHECK(aiokq_feed(&pool, message, size, -1, 0, AIOKQ_DISCARD, intake.limit, -1) == size);
    CHECK(pool.refused_first != NULL && pool.refused_first->value_size == VALUE);
    for (int64_t at = 0; at < size - AIOKQ_READ_BYTES; at += AIOKQ_READ_BYTES)
        CHECK(aiokq_connection_data(&intake, connection, message + at, AIOKQ_READ_BYTES));
    aiokq_connection_end(&intake, connection);
    CHECK(pool.partial == 0 && pool.discarded[AIOKQ_UNCLEAN_DISCONNECT] == 1);
    fprintf(stdout, "most bytes under the mutex: %zu\n", watched.most);
    CHECK(watched.most <= AIOKQ_LOCKED_BYTES + 2 * AIOKQ_LARGE);
    memset(&watched, 0, sizeof watched);
    aiokq_pool_free(&pool);
    free(message);
}

/* ---------------------------------------------------------------- spare segments */

static int spares_kept(const aiokq_spares *spares) {
    int kept = 0;
    for (int n = 0; n < AIOKQ_SPARES; n++)
        kept += spares->kept[n] != NULL;
    return kept;
}

/* Segments that were kept count while they are in use, so that few have more pages than messages. */
static void check_spares(void) {
    enum { COUNT = 2 * AIOKQ_SPARES };
    aiokq_segment *all[COUNT];
    aiokq_spares *spares;
    aiokq_pool pool;
    CHECK(aiokq_pool_make(&pool, 1 << 20, -1, 1));
    spares = pool.spares;
    for (int n = 0; n < COUNT; n++)
        CHECK((all[n] = aiokq_segment_new(spares, AIOKQ_MAPPED)) != NULL);
    CHECK(spares->count == 0 && spares->holds == COUNT + 1);
    for (int n = 0; n < COUNT; n++)
        aiokq_segment_release(all[n]);
    CHECK(spares->count == AIOKQ_SPARES && spares_kept(spares) == AIOKQ_SPARES);
    for (int n = 0; n < COUNT; n++)
        CHECK((all[n] = aiokq_segment_new(spares, AIOKQ_MAPPED)) != NULL);
    CHECK(spares->count == AIOKQ_SPARES && spares_kept(spares) == 0);
    for (int n = AIOKQ_SPARES; n < COUNT; n++) /* these are new */
        aiokq_segment_release(all[n]);
    CHECK(spares->count == AIOKQ_SPARES && spares_kept(spares) == 0);
    aiokq_segment_release(all[0]);
    CHECK(spares->count == AIOKQ_SPARES && spares_kept(spares) == 1);
    aiokq_rest_if_empty(&pool, 0);
    CHECK(spares->count == AIOKQ_SPARES - 1 && spares_kept(spares) == 0);
    aiokq_segment_release(all[1]); /* after the pool became empty */
    CHECK(spares->count == AIOKQ_SPARES - 2 && spares_kept(spares) == 0);
    aiokq_pool_free(&pool);
    for (int n = 2; n < AIOKQ_SPARES; n++) {
        CHECK(spares->holds == AIOKQ_SPARES - n); /* the last one frees `spares` */
        aiokq_segment_release(all[n]);
    }
}

/* ---------------------------------------------------------------- threads */

#if defined(__linux__)

typedef struct {
    struct sockaddr_un address;
    int stream;
    int64_t messages;
} sender;

static void *send_messages(void *given) {
    sender *from = (sender *)given;
    unsigned char message[8192];
    int fd = socket(AF_UNIX, from->stream ? SOCK_STREAM : SOCK_DGRAM, 0);
    memset(message, 0, sizeof message);
    put(message + 4, 256, 2);
    put(message + 10, 1, 2);
    CHECK(connect(fd, (struct sockaddr *)&from->address, sizeof from->address) == 0);
    for (int64_t n = 0; n < from->messages; n++) {
        int64_t value = n % 50 ? 8 : 4000, size = 4 + 6 + 2 + 1 + 8 + 4 + 4 + value;
        put(message, (uint64_t)size, 4);
        message[12] = (unsigned char)('a' + n % 5);
        put(message + 25, (uint64_t)value, 4);
        put(message + 29, (uint64_t)n, 8);
        CHECK(send(fd, message, (size_t)size, 0) == size);
    }
    close(fd);
    return NULL;
}

/* Makes an input with a socket of its own, and names it to two senders. */
static void make_input(aiokq_intake *intake, aiokq_pool *pool, aiokq_spool *spool, int number,
                       int64_t messages, sender *senders) {
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "aiokq-fuzz-%d-%d", (int)getpid(),
             number);
    intake->fd = socket(AF_UNIX, number ? SOCK_STREAM : SOCK_DGRAM, 0);
    CHECK(bind(intake->fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(number == 0 || listen(intake->fd, 16) == 0);
    intake->pool = pool;
    intake->spool = spool;
    intake->transport = number;
    intake->limit = 65536;
    intake->block = 1;
    intake->max_connections = 100;
    intake->idle_ms = 10000;
    intake->idle_when_full_ms = 10000;
    for (int half = 0; half < 2; half++) {
        senders[half].address = address;
        senders[half].stream = number > 0;
        senders[half].messages = messages;
    }
}

static void run_threads(int64_t messages) {
    aiokq_pool pool;
    aiokq_intake intakes[3];
    sender senders[6];
    pthread_t threads[6];
    int64_t released = 0, most = 6 * messages, limits[6] = {100, 0, 5, 5000, 0, -1};
    CHECK(aiokq_pool_make(&pool, 20000, -1, 1));
    pool.sample_bytes = 100;
    pool.max_names = 1000;
    memset(intakes, 0, sizeof intakes);
    for (int n = 0; n < 3; n++) {
        make_input(intakes + n, &pool, NULL, n, messages, senders + 2 * n);
        CHECK(aiokq_intake_start(intakes + n) == 0);
    }
    for (int n = 0; n < 6; n++)
        CHECK(pthread_create(threads + n, NULL, send_messages, senders + n) == 0);
    while (released < most) {
        int64_t from, to, held;
        aiokq_segment *segment = NULL;
        aiokq_slot *slot;
        aiokq_pool_lock(&pool);
        while ((slot = pool.fresh.first) != NULL) {
            aiokq_list_remove(&pool.fresh, slot);
            aiokq_limit(&pool, slot, limits);
            aiokq_resolve(&pool, slot);
        }
        aiokq_due(&pool, aiokq_ms(CLOCK_MONOTONIC));
        if (pool.ready.first != NULL)
            segment = aiokq_take(&pool, pool.ready.first, 0, &from, &to);
        aiokq_pool_unlock(&pool);
        if (segment == NULL) {
            aiokq_pause();
            continue;
        }
        use(segment, from, to);
        aiokq_pool_lock(&pool);
        pool.used -= aiokq_span(segment, from, to) + (to - from) * AIOKQ_MESSAGE_OVERHEAD;
        pool.held -= to - from;
        pool.taken -= to - from;
        released += to - from;
        check_books(&pool, released);
        aiokq_memory_freed(&pool);
        held = pool.held;
        aiokq_pool_unlock(&pool);
        aiokq_rest_if_empty(&pool, held);
        aiokq_segment_release(segment);
    }
    for (int n = 0; n < 6; n++)
        pthread_join(threads[n], NULL);
    for (int n = 0; n < 3; n++) {
        aiokq_intake_stop(intakes + n, 20000);
        close(intakes[n].fd);
    }
    CHECK(released == most && pool.held == 0 && pool.used == 0);
    aiokq_pool_free(&pool);
}

/* Inputs that block append to a small spool; this thread deletes what is finished, and syncs. */
static void run_spool(int64_t messages) {
    char directory[] = "/tmp/aiokq-fuzz-XXXXXX";
    aiokq_pool pool;
    aiokq_spool spool;
    aiokq_intake intakes[3];
    sender senders[6];
    pthread_t threads[6];
    int64_t found = 0, most = 6 * messages;
    CHECK(mkdtemp(directory) != NULL);
    CHECK(aiokq_pool_make(&pool, 200000, -1, 1));
    pool.sample_bytes = 100;
    pool.max_names = 1000;
    spool_make(&spool, directory, 100000, 20000, AIOKQ_SYNC_INTERVAL);
    memset(intakes, 0, sizeof intakes);
    for (int n = 0; n < 3; n++) {
        make_input(intakes + n, &pool, &spool, n, messages, senders + 2 * n);
        CHECK(aiokq_intake_start(intakes + n) == 0);
    }
    for (int n = 0; n < 6; n++)
        CHECK(pthread_create(threads + n, NULL, send_messages, senders + n) == 0);
    while (found < most) {
        aiokq_sealed now, *sealed;
        int count = 0;
        CHECK((sealed = aiokq_spool_progress(&spool, &count, &now)) != NULL);
        for (int n = 0; n < count; n++) {
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s/%020lld.spool", directory, (long long)sealed[n].base);
            found += read_segment(path);
            aiokq_spool_freed(&spool, sealed[n].end);
        }
        free(sealed);
        CHECK(aiokq_spool_flush(&spool) == 0);
        if (now.sequence == most) {
            found += spool_messages(directory);
            break;
        }
        if (count == 0)
            aiokq_pause();
    }
    for (int n = 0; n < 6; n++)
        pthread_join(threads[n], NULL);
    for (int n = 0; n < 3; n++) {
        aiokq_intake_stop(intakes + n, 20000);
        close(intakes[n].fd);
    }
    CHECK(found == most && spool.appended == most && pool.received == 0);
    aiokq_spool_free(&spool);
    aiokq_pool_free(&pool);
    CHECK(rmdir(directory) == 0);
}

/* Connects to an input, and sends the first `part` bytes of a message of `size` bytes. */
static int send_part(const sender *to, int64_t size, int64_t part) {
    unsigned char *message = (unsigned char *)calloc(1, (size_t)size);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(connect(fd, (const struct sockaddr *)&to->address, sizeof to->address) == 0);
    CHECK(message != NULL);
    put(message, (uint64_t)size, 4);
    put(message + 4, 256, 2);
    put(message + 10, 1, 2);
    message[12] = 'a';
    put(message + 25, (uint64_t)(size - 29), 4);
    for (int64_t at = 0; at < part;) {
        ssize_t sent = send(fd, message + at, (size_t)(part - at), 0);
        CHECK(sent > 0);
        at += sent;
    }
    free(message);
    return fd;
}

/* Inputs that block, without a limit for incomplete messages: two of one input use the half of the
 * pool that is for them, so they end when a connection of the other input waits for them. */
static void run_partials(void) {
    aiokq_pool pool;
    aiokq_intake intakes[2];
    sender senders[4];
    int64_t began = aiokq_ms(CLOCK_MONOTONIC), received = 0;
    int fds[3];
    CHECK(aiokq_pool_make(&pool, 1000000, -1, 1));
    pool.sample_bytes = 100;
    pool.max_names = 1000;
    memset(intakes, 0, sizeof intakes);
    for (int n = 0; n < 2; n++) {
        make_input(intakes + n, &pool, NULL, n + 1, 0, senders + 2 * n);
        intakes[n].transport = 1;
        intakes[n].limit = 1000000;
        intakes[n].idle_ms = 0;
        CHECK(aiokq_intake_start(intakes + n) == 0);
    }
    fds[0] = send_part(senders, 900000, 560000);
    while (aiokq_ms(CLOCK_MONOTONIC) - began < 200)
        aiokq_pause();
    fds[1] = send_part(senders, 900000, 300000);
    while (aiokq_ms(CLOCK_MONOTONIC) - began < 400)
        aiokq_pause();
    fds[2] = send_part(senders + 2, 1000, 1000);
    while (received == 0 && aiokq_ms(CLOCK_MONOTONIC) - began < 10 * AIOKQ_CROWDED_MS) {
        aiokq_pause();
        aiokq_pool_lock(&pool);
        received = intakes[1].counts.received;
        aiokq_pool_unlock(&pool);
    }
    CHECK(received == 1);
    for (int n = 0; n < 3; n++)
        close(fds[n]);
    for (int n = 0; n < 2; n++) {
        aiokq_intake_stop(intakes + n, 20000);
        close(intakes[n].fd);
    }
    CHECK(intakes[0].counts.partial_closed > 0 && pool.partial == 0);
    aiokq_pool_free(&pool);
}

static void *stop_slowly(void *given) {
    aiokq_intake_stop((aiokq_intake *)given, 600000);
    return NULL;
}

static void *write_forever(void *given) {
    char zeros[4096];
    memset(zeros, 0, sizeof zeros);
    put((unsigned char *)zeros, sizeof zeros, 4);
    while (send(*(int *)given, zeros, sizeof zeros, MSG_NOSIGNAL) > 0)
        continue;
    return NULL;
}

/* Two threads end an input: the second limits the time of the first. A connection is open on which
 * nothing came, and one of which the program writes all the time. */
static void run_ends(void) {
    aiokq_pool pool;
    aiokq_intake intake;
    sender senders[2];
    pthread_t stops, writes;
    int64_t accepted = 0;
    int fds[2], listening;
    CHECK(aiokq_pool_make(&pool, 1000000, -1, 1));
    pool.sample_bytes = 100;
    memset(&intake, 0, sizeof intake);
    make_input(&intake, &pool, NULL, 1, 0, senders);
    /* As TCP, an ending input leaves its connections open. */
    intake.transport = AIOKQ_TCP;
    intake.block = 0;
    listening = intake.fd;
    CHECK(aiokq_intake_start(&intake) == 0);
    for (int n = 0; n < 2; n++)
        fds[n] = send_part(senders, 29, 0);
    while (accepted < 2) {
        aiokq_pause();
        aiokq_pool_lock(&pool);
        accepted = intake.counts.accepted;
        aiokq_pool_unlock(&pool);
    }
    for (int n = 0; n < 50; n++)
        aiokq_pause(); /* the thread waits for its next event */
    CHECK(pthread_create(&stops, NULL, stop_slowly, &intake) == 0);
    for (int n = 0; n < 50; n++)
        aiokq_pause();
    CHECK(pthread_create(&writes, NULL, write_forever, fds) == 0);
    for (int n = 0; n < 50; n++)
        aiokq_pause();
    aiokq_intake_stop(&intake, 100);
    pthread_join(stops, NULL);
    pthread_join(writes, NULL);
    CHECK(intake.counts.connections == 0 && intake.counts.running == 0);
    for (int n = 0; n < 2; n++)
        close(fds[n]);
    close(listening);
    aiokq_pool_free(&pool);
}

#endif

int main(int count, char **given) {
    if (count == 4 && strcmp(given[1], "bytes") == 0)
        fuzz_bytes((uint64_t)atoll(given[2]), atoll(given[3]));
    else if (count == 2 && strcmp(given[1], "locks") == 0)
        check_locks();
    else if (count == 2 && strcmp(given[1], "spares") == 0)
        check_spares();
#if defined(__linux__)
    else if (count == 3 && strcmp(given[1], "threads") == 0)
        run_threads(atoll(given[2]));
    else if (count == 3 && strcmp(given[1], "spool") == 0)
        run_spool(atoll(given[2]));
    else if (count == 2 && strcmp(given[1], "partials") == 0)
        run_partials();
    else if (count == 2 && strcmp(given[1], "ends") == 0)
        run_ends();
#endif
    else
        return 2;
    return 0;
}
