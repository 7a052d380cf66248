/* Owns how a Produce request is read from the front, and which batches are ordinary.
 * Tests: tests/unit/fastpath/test_produced.py. */
#ifndef AIOKQ_REQUESTS_H
#define AIOKQ_REQUESTS_H

#include "aiokq/fastpath/checksums.h"

/* The most that the arrays of an ordinary request have in all: who has more to append lets others
 * have their turn, and nobody makes millions of objects of a frame that says nothing else. */
#define AIOKQ_MOST_PARTS 1024

/* `bad` once the bytes were not what was asked for: what is given then means nothing. */
typedef struct {
    const unsigned char *at, *end;
    int flexible, bad, parts;
} aiokq_request;

/* The bytes there, which are passed; NULL if there are not so many. */
static inline const unsigned char *aiokq_pass(aiokq_request *request, int64_t size) {
    const unsigned char *at = request->at;
    if (AIOKQ_UNLIKELY(request->bad || size < 0 || size > request->end - at)) {
        request->bad = 1;
        return NULL;
    }
    request->at = at + size;
    return at;
}

static inline int32_t aiokq_int16(aiokq_request *request) {
    const unsigned char *at = aiokq_pass(request, 2);
    return at == NULL ? -1 : aiokq_i16(at);
}

static inline int32_t aiokq_int32(aiokq_request *request) {
    const unsigned char *at = aiokq_pass(request, 4);
    return at == NULL ? -1 : aiokq_i32(at);
}

/* The size of a string, of bytes or of an array, -1 for null: in a flexible version an unsigned
 * varint of one more, of 32 bits at most; else a number of so many bytes. */
static inline int64_t aiokq_length(aiokq_request *request, int plain) {
    uint64_t bits = 0;
    int shift;
    if (!request->flexible)
        return plain == 2 ? aiokq_int16(request) : aiokq_int32(request);
    for (shift = 0; shift < 35; shift += 7) {
        const unsigned char *at = aiokq_pass(request, 1);
        if (at == NULL)
            return -1;
        bits |= (uint64_t)(*at & 0x7f) << shift;
        if (*at < 0x80)
            return (int64_t)bits - 1;
    }
    request->bad = 1;
    return -1;
}

/* How many elements an array has; -1 for null, or for more than all arrays may have together. */
static inline int64_t aiokq_elements(aiokq_request *request) {
    int64_t count = aiokq_length(request, 4);
    if (count < 0 || count > AIOKQ_MOST_PARTS - request->parts) {
        request->bad = 1;
        return -1;
    }
    request->parts += (int)count;
    return count;
}

/* Passes tagged fields, where the version has them; some that are there are nobody's here. */
static inline void aiokq_no_tags(aiokq_request *request) {
    const unsigned char *at;
    if (request->flexible && ((at = aiokq_pass(request, 1)) == NULL || *at))
        request->bad = 1;
}

/* Whether bytes are one batch of format 2 as most producers send it: neither control batch nor part
 * of a transaction, without the broker's timestamp, its numbers as they must be, its CRC right. */
static inline int aiokq_ordinary(const unsigned char *at, int64_t size, int newest_codec) {
    int attributes, last_delta;
    if (size <= 61 || aiokq_i32(at + 8) != size - 12 || at[16] != 2 || aiokq_i64(at) != 0)
        return 0;
    attributes = aiokq_i16(at + 21);
    if ((attributes & 7) > newest_codec || attributes & 0x38)
        return 0;
    last_delta = aiokq_i32(at + 23);
    if (last_delta < 0 || (int64_t)last_delta + 1 != aiokq_i32(at + 57))
        return 0;
    if (aiokq_i64(at + 43) >= 0 && aiokq_i32(at + 53) < 0)
        return 0;
    return aiokq_u32(at + 17) == aiokq_crc32c(0, at + 21, (Py_ssize_t)size - 21);
}

#endif
