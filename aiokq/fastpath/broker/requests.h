/* Sequential reading of a Produce request, and the check whether a batch is ordinary.
 * Tests: tests/unit/fastpath/test_produced.py. */
#ifndef AIOKQ_REQUESTS_H
#define AIOKQ_REQUESTS_H

#include "aiokq/fastpath/checksums.h"

/* Maximum number of array elements of an ordinary request, all arrays together. Larger requests
 * are decoded in the general way, which yields to other connections; the limit also keeps a hostile
 * frame from creating millions of objects. */
#define AIOKQ_MOST_PARTS 1024

/* A position in a request. `bad` is set by the first read that fails; the results of that read and
 * of later ones are meaningless. */
typedef struct {
    const unsigned char *at, *end;
    int flexible, bad, parts;
} aiokq_request;

/* Advances by `size` bytes and returns their start; NULL if fewer bytes are left. */
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

/* Reads the length of a string, of bytes or of an array; -1 for null. In flexible versions it is
 * an unsigned varint of at most five bytes that holds the length plus one, else an integer of
 * `plain` bytes. */
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

/* Reads the number of elements of an array. For null, or if all arrays together have more than
 * AIOKQ_MOST_PARTS elements, it sets `bad` and returns -1. */
static inline int64_t aiokq_elements(aiokq_request *request) {
    int64_t count = aiokq_length(request, 4);
    if (count < 0 || count > AIOKQ_MOST_PARTS - request->parts) {
        request->bad = 1;
        return -1;
    }
    request->parts += (int)count;
    return count;
}

/* Skips an empty section of tagged fields, if the version has one; tagged fields set `bad`. */
static inline void aiokq_no_tags(aiokq_request *request) {
    const unsigned char *at;
    if (request->flexible && ((at = aiokq_pass(request, 1)) == NULL || *at))
        request->bad = 1;
}

/* The attributes that an ordinary batch does not have: LogAppendTime and control, and transactional
 * if the request has no transactional id. */
#define AIOKQ_SPECIAL 0x28
#define AIOKQ_TRANSACTIONAL 0x10

/* Whether the bytes are one ordinary batch of format 2: base offset 0, none of the `special`
 * attributes, a codec up to `newest_codec`, consistent header fields and a valid CRC. */
static inline int aiokq_ordinary(const unsigned char *at, int64_t size, int newest_codec,
                                 int special) {
    int attributes, last_delta;
    if (size <= 61 || aiokq_i32(at + 8) != size - 12 || at[16] != 2 || aiokq_i64(at) != 0)
        return 0;
    attributes = aiokq_i16(at + 21);
    if ((attributes & 7) > newest_codec || attributes & special)
        return 0;
    last_delta = aiokq_i32(at + 23);
    if (last_delta < 0 || (int64_t)last_delta + 1 != aiokq_i32(at + 57))
        return 0;
    if (aiokq_i64(at + 43) >= 0 && aiokq_i32(at + 53) < 0)
        return 0;
    return aiokq_u32(at + 17) == aiokq_crc32c(0, at + 21, (Py_ssize_t)size - 21);
}

#endif
