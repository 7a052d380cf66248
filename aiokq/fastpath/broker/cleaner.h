/* The byte loops of log compaction, which run without the GIL: they fill the map of the last offset
 * of each key, and copy the kept records of v2 batches. The caller handles batches of transactions,
 * compressed batches and batches of other formats.
 * Tests: tests/unit/fastpath/test_compaction.py. */
#ifndef AIOKQ_CLEANER_H
#define AIOKQ_CLEANER_H

#include "aiokq/fastpath/checksums.h"
#include "aiokq/fastpath/records.h"

#include <stdlib.h>

/* The reasons for the end of a pass over batches. */
#define AIOKQ_WALK_END 0     /* no complete batch is left, or AIOKQ_ONE was given */
#define AIOKQ_WALK_OTHER 1   /* the caller has to handle the next batch */
#define AIOKQ_WALK_FULL 2    /* the map or the output buffer is full */
#define AIOKQ_WALK_CORRUPT 3 /* the next batch contradicts its header */

/* Flags of one pass. */
#define AIOKQ_ONE 1      /* read one batch, whatever its attributes, with uncompressed records */
#define AIOKQ_TRUSTED 2  /* the CRC-32C was verified before */
#define AIOKQ_KEEP_ALL 4 /* keep all records */
#define AIOKQ_HORIZON 8  /* set a delete horizon even if no kept record is a tombstone */

#define AIOKQ_BATCH_HEADER 61
#define AIOKQ_CODEC_BITS 0x07
#define AIOKQ_APPEND_TIME_BIT 0x08
#define AIOKQ_TRANSACTION_BITS 0x30 /* transactional, control */
#define AIOKQ_HORIZON_BIT 0x40

/* ---------------------------------------------------------------- the map */

/* A slot of 24 bytes, as in Kafka's SkimpyOffsetMap: the hash of a key, and its last offset. */
typedef struct {
    uint64_t high;
    uint64_t low;
    int64_t behind; /* offset + 1; 0 for a free slot */
} aiokq_slot;

typedef struct {
    aiokq_slot *slots;
    uint64_t count; /* number of slots */
    uint64_t used;
    uint64_t most; /* maximum number of used slots */
    uint64_t secret[2];
} aiokq_map;

#define AIOKQ_ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define AIOKQ_SIP_ROUND(a, b, c, d)                                                             \
    do {                                                                                        \
        a += b; b = AIOKQ_ROTATE(b, 13); b ^= a; a = AIOKQ_ROTATE(a, 32);                       \
        c += d; d = AIOKQ_ROTATE(d, 16); d ^= c;                                                \
        a += d; d = AIOKQ_ROTATE(d, 21); d ^= a;                                                \
        c += b; b = AIOKQ_ROTATE(b, 17); b ^= c; c = AIOKQ_ROTATE(c, 32);                       \
    } while (0)

static inline uint64_t aiokq_little_u64(const unsigned char *at) {
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 |
           (uint64_t)at[3] << 24 | (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40 |
           (uint64_t)at[6] << 48 | (uint64_t)at[7] << 56;
}

/* SipHash-2-4 with 128 bits. The secret is random, so that no client can construct colliding keys.
 * With MD5, which Kafka uses, clients can construct them, and a collision loses a record.
 * Source: Aumasson, Bernstein, "SipHash". */
static inline void aiokq_sip(const uint64_t secret[2], const unsigned char *at, int64_t size,
                             uint64_t *high, uint64_t *low) {
    uint64_t a = secret[0] ^ UINT64_C(0x736f6d6570736575);
    uint64_t b = secret[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee;
    uint64_t c = secret[0] ^ UINT64_C(0x6c7967656e657261);
    uint64_t d = secret[1] ^ UINT64_C(0x7465646279746573);
    uint64_t last = (uint64_t)size << 56, word;
    int64_t left = size;
    for (; left >= 8; left -= 8, at += 8) {
        word = aiokq_little_u64(at);
        d ^= word;
        AIOKQ_SIP_ROUND(a, b, c, d);
        AIOKQ_SIP_ROUND(a, b, c, d);
        a ^= word;
    }
    while (left-- > 0)
        last |= (uint64_t)at[left] << (8 * left);
    d ^= last;
    AIOKQ_SIP_ROUND(a, b, c, d);
    AIOKQ_SIP_ROUND(a, b, c, d);
    a ^= last;
    c ^= 0xee;
    for (int n = 0; n < 4; n++)
        AIOKQ_SIP_ROUND(a, b, c, d);
    *high = a ^ b ^ c ^ d;
    b ^= 0xdd;
    for (int n = 0; n < 4; n++)
        AIOKQ_SIP_ROUND(a, b, c, d);
    *low = a ^ b ^ c ^ d;
}

/* The slot at which the search for a hash begins. */
static inline uint64_t aiokq_map_first(const aiokq_map *map, uint64_t high) {
#if defined(__SIZEOF_INT128__)
    return (uint64_t)(((unsigned __int128)high * map->count) >> 64);
#else
    return high % map->count;
#endif
}

/* A hashed key whose slot is being prefetched. */
typedef struct {
    uint64_t high;
    uint64_t low;
    int64_t offset;
    int32_t index; /* index of the record in its batch */
} aiokq_pending;

/* Number of slots prefetched at a time, about the number of loads that a processor has in flight. A
 * large map does not fit into the caches, and waiting for a slot takes longer than all other work
 * on a record. */
#define AIOKQ_AHEAD 16

static inline void aiokq_map_ask(const aiokq_map *map, aiokq_pending *pending,
                                 const unsigned char *key, int64_t size) {
    aiokq_sip(map->secret, key, size, &pending->high, &pending->low);
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(map->slots + aiokq_map_first(map, pending->high), 1);
#endif
}

/* The slot of a hash, or the free slot for it. There are always free slots. */
static inline aiokq_slot *aiokq_map_slot(const aiokq_map *map, uint64_t high, uint64_t low) {
    uint64_t at = aiokq_map_first(map, high);
    for (;;) {
        aiokq_slot *slot = map->slots + at;
        if (slot->behind == 0 || (slot->high == high && slot->low == low))
            return slot;
        if (++at == map->count)
            at = 0;
    }
}

static int aiokq_map_make(aiokq_map *map, uint64_t count, uint64_t most) {
    map->slots = (aiokq_slot *)calloc((size_t)count, sizeof(aiokq_slot));
    map->count = count;
    map->most = most < count ? most : count - 1;
    map->used = 0;
    return map->slots != NULL;
}

static void aiokq_map_free(aiokq_map *map) {
    free(map->slots);
    map->slots = NULL;
}

static inline int aiokq_map_set(aiokq_map *map, const aiokq_pending *pending) {
    aiokq_slot *slot = aiokq_map_slot(map, pending->high, pending->low);
    if (slot->behind == 0) {
        if (map->used >= map->most)
            return 0;
        map->used++;
        slot->high = pending->high;
        slot->low = pending->low;
    }
    slot->behind = pending->offset + 1;
    return 1;
}

/* Sets the offset of a key; returns 0 if the key is new and the map is full. Callers pass offsets
 * in ascending order, so that the map ends with the last offset of each key. */
static int aiokq_map_put(aiokq_map *map, const unsigned char *key, int64_t size, int64_t offset) {
    aiokq_pending pending;
    pending.offset = offset;
    aiokq_map_ask(map, &pending, key, size);
    return aiokq_map_set(map, &pending);
}

static int64_t aiokq_map_get(const aiokq_map *map, const unsigned char *key, int64_t size) {
    uint64_t high, low;
    aiokq_sip(map->secret, key, size, &high, &low);
    return aiokq_map_slot(map, high, low)->behind - 1;
}

/* ---------------------------------------------------------------- batches */

typedef struct {
    const unsigned char *at;
    const unsigned char *records;
    const unsigned char *end;
    int64_t base_offset;
    int64_t last_offset;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int32_t count;
    int attributes;
} aiokq_batch;

static inline void aiokq_write_i64(unsigned char *at, int64_t value) {
    for (int n = 0; n < 8; n++)
        at[n] = (unsigned char)((uint64_t)value >> (56 - 8 * n));
}

static inline void aiokq_write_u32(unsigned char *at, uint32_t value) {
    for (int n = 0; n < 4; n++)
        at[n] = (unsigned char)(value >> (24 - 8 * n));
}

/* Reads the header of the batch at data[at], and verifies the CRC-32C unless the flag AIOKQ_TRUSTED
 * is given. AIOKQ_WALK_END means success. */
static int aiokq_read_batch(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, int flags,
                            aiokq_batch *batch) {
    const unsigned char *head = data + at;
    int64_t size = (int64_t)aiokq_i32(head + 8) + 12;
    if (head[16] != 2)
        return AIOKQ_WALK_OTHER;
    batch->attributes = head[22];
    if (size < AIOKQ_BATCH_HEADER || size > end - at)
        return AIOKQ_WALK_CORRUPT;
    if (!(flags & AIOKQ_ONE) && batch->attributes & (AIOKQ_CODEC_BITS | AIOKQ_TRANSACTION_BITS))
        return AIOKQ_WALK_OTHER;
    if (!(flags & AIOKQ_TRUSTED) &&
        aiokq_crc32c(0, head + 21, (Py_ssize_t)size - 21) != aiokq_u32(head + 17))
        return AIOKQ_WALK_CORRUPT;
    batch->at = head;
    batch->records = head + AIOKQ_BATCH_HEADER;
    batch->end = head + size;
    batch->base_offset = aiokq_i64(head);
    batch->last_offset = aiokq_add(batch->base_offset, aiokq_i32(head + 23));
    batch->base_timestamp = aiokq_i64(head + 27);
    batch->max_timestamp = aiokq_i64(head + 35);
    batch->producer_id = aiokq_i64(head + 43);
    batch->count = aiokq_i32(head + 57);
    if (batch->count < 0 || batch->last_offset < batch->base_offset)
        return AIOKQ_WALK_CORRUPT;
    return AIOKQ_WALK_END;
}

/* Whether the batch that begins at `at` is complete, by the size in its header. */
static inline int aiokq_is_whole(const unsigned char *data, Py_ssize_t at, Py_ssize_t end) {
    return end - at >= 17 && (int64_t)aiokq_i32(data + at + 8) + 12 <= end - at;
}

/* State of a pass that adds the last offset of each key to the map. */
typedef struct {
    Py_ssize_t at;   /* position at which the pass ended */
    int64_t latest;  /* last offset of the batches whose keys were all added */
    int64_t records; /* number of records read */
} aiokq_indexing;

static int aiokq_map_index(aiokq_map *map, const unsigned char *data, Py_ssize_t end,
                           int64_t start_offset, int flags, aiokq_indexing *walk) {
    aiokq_batch batch;
    aiokq_record record;
    aiokq_pending pending[AIOKQ_AHEAD];
    while (aiokq_is_whole(data, walk->at, end)) {
        int state = aiokq_read_batch(data, walk->at, end, flags, &batch);
        int asked = 0;
        const unsigned char *at;
        if (state != AIOKQ_WALK_END)
            return state;
        at = batch.records;
        for (int32_t n = 0; n < batch.count; n++) {
            if (!aiokq_parse_record(at, batch.end, &record))
                return AIOKQ_WALK_CORRUPT;
            at = record.end;
            if (record.key_size >= 0) {
                int64_t offset = aiokq_add(batch.base_offset, record.offset_delta);
                if (offset < batch.base_offset || offset > batch.last_offset)
                    return AIOKQ_WALK_CORRUPT;
                if (offset >= start_offset) {
                    pending[asked].offset = offset;
                    aiokq_map_ask(map, pending + asked++, record.key, record.key_size);
                }
            }
            if (asked == AIOKQ_AHEAD || n == batch.count - 1) {
                for (int i = 0; i < asked; i++)
                    if (!aiokq_map_set(map, pending + i))
                        return AIOKQ_WALK_FULL;
                asked = 0;
            }
        }
        if (at != batch.end)
            return AIOKQ_WALK_CORRUPT;
        walk->records += batch.count;
        if (batch.last_offset >= start_offset && batch.last_offset > walk->latest)
            walk->latest = batch.last_offset;
        walk->at = batch.end - data;
        if (flags & AIOKQ_ONE)
            break;
    }
    return AIOKQ_WALK_END;
}

/* ---------------------------------------------------------------- copying */

typedef struct {
    /* input */
    const aiokq_map *map;
    int64_t latest;  /* records after this offset are not in the map */
    int64_t now;     /* milliseconds since the epoch */
    int64_t horizon; /* delete horizon for batches that get one */
    int64_t upper;   /* the batch that ends right before this offset is kept even if empty */
    int64_t interval;
    const int64_t *producers; /* sorted pairs: id of an active producer, its last offset */
    Py_ssize_t producer_count;
    /* output */
    unsigned char *out;
    Py_ssize_t room;
    Py_ssize_t used;
    int64_t *notes; /* four numbers per index entry: see aiokq_note */
    Py_ssize_t note_room;
    Py_ssize_t note_count;
    unsigned char *marks; /* per record of a batch: whether it is kept */
    Py_ssize_t mark_room;
    /* progress */
    Py_ssize_t at;
    int64_t position; /* file position of out[0] */
    int64_t unnoted;  /* bytes since the last index entry */
    int64_t max_timestamp;
    int64_t max_offset;
    int64_t read;
    int64_t kept;
    int64_t keyless;
    int64_t batches;
} aiokq_keeping;

static void aiokq_marks_free(aiokq_keeping *keeping) { free(keeping->marks); }

/* Whether a batch without records is kept, because it holds the last sequence of an active producer
 * or the last offset of the cleaned range. */
static int aiokq_stays_empty(const aiokq_keeping *keeping, int64_t producer_id,
                             int64_t last_offset) {
    Py_ssize_t low = 0, high = keeping->producer_count;
    if (last_offset + 1 == keeping->upper)
        return 1;
    if (producer_id < 0)
        return 0;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (keeping->producers[2 * middle] < producer_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < keeping->producer_count && keeping->producers[2 * low] == producer_id &&
           keeping->producers[2 * low + 1] == last_offset;
}

/* Counts an output batch of `size` bytes, and every `interval` bytes adds an entry for the offset
 * index and the time index: last offset and position of the batch, largest timestamp so far, and
 * the last offset of the batch with that timestamp. */
static void aiokq_note(aiokq_keeping *keeping, int64_t last_offset, int64_t size,
                       int64_t timestamp) {
    if (timestamp > keeping->max_timestamp) {
        keeping->max_timestamp = timestamp;
        keeping->max_offset = last_offset;
    }
    if (keeping->unnoted > keeping->interval) {
        int64_t *note = keeping->notes + 4 * keeping->note_count++;
        note[0] = last_offset;
        note[1] = keeping->position + keeping->used;
        note[2] = keeping->max_timestamp;
        note[3] = keeping->max_offset;
        keeping->unnoted = 0;
    }
    keeping->unnoted += size;
    keeping->used += size;
    keeping->batches++;
}

/* Sets `marks` for the kept records; returns AIOKQ_WALK_CORRUPT, or AIOKQ_WALK_END for success. */
static int aiokq_mark(aiokq_keeping *keeping, const aiokq_batch *batch, int flags, int32_t *kept,
                      int *tombstones, int64_t *largest) {
    const unsigned char *at = batch->records;
    int keeps_deletes =
        !(batch->attributes & AIOKQ_HORIZON_BIT) || keeping->now < batch->base_timestamp;
    int64_t keyless = 0;
    aiokq_record record;
    struct {
        aiokq_pending key;
        int64_t timestamp;
        int has_value;
    } pending[AIOKQ_AHEAD];
    int asked = 0;
    *kept = 0;
    *tombstones = 0;
    *largest = -1;
    for (int32_t n = 0; n < batch->count; n++) {
        int64_t offset, timestamp;
        int stays = 0;
        if (!aiokq_parse_record(at, batch->end, &record))
            return AIOKQ_WALK_CORRUPT;
        at = record.end;
        offset = aiokq_add(batch->base_offset, record.offset_delta);
        if (offset < batch->base_offset || offset > batch->last_offset)
            return AIOKQ_WALK_CORRUPT;
        timestamp = aiokq_add(batch->base_timestamp, record.timestamp_delta);
        if (flags & AIOKQ_KEEP_ALL || offset > keeping->latest) {
            stays = 1;
        } else if (record.key_size < 0) {
            keyless++;
        } else if (record.value_size >= 0 || keeps_deletes) {
            pending[asked].key.offset = offset;
            pending[asked].key.index = n;
            pending[asked].timestamp = timestamp;
            pending[asked].has_value = record.value_size >= 0;
            aiokq_map_ask(keeping->map, &pending[asked++].key, record.key, record.key_size);
        }
        keeping->marks[n] = (unsigned char)stays;
        if (stays) {
            ++*kept;
            *tombstones |= record.value_size < 0;
            if (timestamp > *largest)
                *largest = timestamp;
        }
        if (asked == AIOKQ_AHEAD || n == batch->count - 1) {
            for (int i = 0; i < asked; i++) {
                const aiokq_pending *key = &pending[i].key;
                if (key->offset < aiokq_map_slot(keeping->map, key->high, key->low)->behind - 1)
                    continue;
                keeping->marks[key->index] = 1;
                ++*kept;
                *tombstones |= !pending[i].has_value;
                if (pending[i].timestamp > *largest)
                    *largest = pending[i].timestamp;
            }
            asked = 0;
        }
    }
    if (at != batch->end)
        return AIOKQ_WALK_CORRUPT;
    keeping->keyless += keyless;
    return AIOKQ_WALK_END;
}

/* Writes the kept records to `to`, with timestamps relative to the delete horizon, which becomes
 * the base timestamp. */
static unsigned char *aiokq_put_moved(const aiokq_keeping *keeping, const aiokq_batch *batch,
                                      unsigned char *to) {
    const unsigned char *at = batch->records;
    int append_time = batch->attributes & AIOKQ_APPEND_TIME_BIT;
    aiokq_record record;
    for (int32_t n = 0; n < batch->count; n++) {
        aiokq_parse_record(at, batch->end, &record); /* succeeded before, in aiokq_mark */
        if (keeping->marks[n]) {
            int64_t size, delta, timestamp;
            const unsigned char *body = aiokq_get_varint(at, batch->end, 32, &size);
            const unsigned char *rest = aiokq_get_varint(body + 1, record.end, 64, &delta);
            timestamp =
                append_time ? batch->max_timestamp : aiokq_add(batch->base_timestamp, delta);
            delta = aiokq_add(timestamp, -keeping->horizon);
            to = aiokq_put_varint(to, 1 + aiokq_varint_size(delta) + (record.end - rest));
            *to++ = *body;
            to = aiokq_put_varint(to, delta);
            memcpy(to, rest, record.end - rest);
            to += record.end - rest;
        }
        at = record.end;
    }
    return to;
}

/* Copies the kept records to `to` unchanged. */
static unsigned char *aiokq_put_kept(const aiokq_keeping *keeping, const aiokq_batch *batch,
                                     unsigned char *to) {
    const unsigned char *at = batch->records, *run = NULL;
    for (int32_t n = 0; n < batch->count; n++) {
        int64_t size = 0;
        const unsigned char *next = aiokq_get_varint(at, batch->end, 32, &size) + size;
        if (keeping->marks[n]) {
            if (run == NULL)
                run = at;
        } else if (run != NULL) {
            memcpy(to, run, at - run);
            to += at - run;
            run = NULL;
        }
        at = next;
    }
    if (run != NULL) {
        memcpy(to, run, at - run);
        to += at - run;
    }
    return to;
}

static void aiokq_finish_batch(unsigned char *head, int64_t size, int attributes, int64_t base,
                               int64_t largest, int32_t count) {
    aiokq_write_u32(head + 8, (uint32_t)(size - 12));
    head[22] = (unsigned char)attributes;
    aiokq_write_i64(head + 27, base);
    aiokq_write_i64(head + 35, largest);
    aiokq_write_u32(head + 57, (uint32_t)count);
    aiokq_write_u32(head + 17, aiokq_crc32c(0, head + 21, (Py_ssize_t)size - 21));
}

/* Copies the kept records of the complete, uncompressed batches from `at` on.
 * Source: Kafka MemoryRecords.filterTo, Cleaner.shouldRetainRecord. */
static int aiokq_keep(aiokq_keeping *keeping, const unsigned char *data, Py_ssize_t end,
                      int flags) {
    aiokq_batch batch;
    while (aiokq_is_whole(data, keeping->at, end)) {
        unsigned char *head = keeping->out + keeping->used;
        int64_t size, needed, largest, keyless = keeping->keyless;
        int32_t kept;
        int tombstones, moved;
        int state = aiokq_read_batch(data, keeping->at, end, flags, &batch);
        if (state != AIOKQ_WALK_END)
            return state;
        if (batch.count > batch.end - batch.records)
            return AIOKQ_WALK_CORRUPT;
        if (batch.count > keeping->mark_room) {
            unsigned char *marks = (unsigned char *)realloc(keeping->marks, (size_t)batch.count);
            if (marks == NULL)
                return AIOKQ_WALK_FULL;
            keeping->marks = marks;
            keeping->mark_room = batch.count;
        }
        size = batch.end - batch.at;
        if (size > keeping->room - keeping->used || keeping->note_count >= keeping->note_room)
            return AIOKQ_WALK_FULL;
        state = aiokq_mark(keeping, &batch, flags, &kept, &tombstones, &largest);
        if (state != AIOKQ_WALK_END)
            return state;
        moved = kept && (tombstones || flags & AIOKQ_HORIZON) &&
                !(batch.attributes & AIOKQ_HORIZON_BIT);
        needed = size + (moved ? (int64_t)kept * 14 : 0);
        if (needed > keeping->room - keeping->used) {
            keeping->keyless = keyless; /* the batch will be read again, and counted then */
            return AIOKQ_WALK_FULL;
        }
        if (kept == batch.count && kept && !moved) {
            memcpy(head, batch.at, (size_t)size);
            aiokq_note(keeping, batch.last_offset, size, batch.max_timestamp);
        } else if (kept) {
            unsigned char *to = head + AIOKQ_BATCH_HEADER;
            int attributes = batch.attributes | (moved ? AIOKQ_HORIZON_BIT : 0);
            memcpy(head, batch.at, AIOKQ_BATCH_HEADER);
            to = moved ? aiokq_put_moved(keeping, &batch, to)
                       : aiokq_put_kept(keeping, &batch, to);
            if (attributes & AIOKQ_APPEND_TIME_BIT)
                largest = batch.max_timestamp;
            aiokq_finish_batch(head, to - head, attributes,
                               moved ? keeping->horizon : batch.base_timestamp, largest, kept);
            aiokq_note(keeping, batch.last_offset, to - head, largest);
        } else if (aiokq_stays_empty(keeping, batch.producer_id, batch.last_offset)) {
            memcpy(head, batch.at, AIOKQ_BATCH_HEADER);
            aiokq_finish_batch(head, AIOKQ_BATCH_HEADER,
                               batch.attributes & ~(AIOKQ_CODEC_BITS | AIOKQ_HORIZON_BIT), -1,
                               batch.max_timestamp, 0);
            aiokq_note(keeping, batch.last_offset, AIOKQ_BATCH_HEADER, batch.max_timestamp);
        }
        keeping->read += batch.count;
        keeping->kept += kept;
        keeping->at = batch.end - data;
        if (flags & AIOKQ_ONE)
            break;
    }
    return AIOKQ_WALK_END;
}

#endif
