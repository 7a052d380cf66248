/* Small stateless C functions that several extensions need and Cython's pure mode cannot express:
 * clock, varints, big-endian numbers, murmur2. The pure core does the same in Python.
 * Tests: tests/unit/fastpath/, tests/property/test_core_parity.py. */
#ifndef AIOKQ_NATIVE_H
#define AIOKQ_NATIVE_H

#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifndef AIOKQ_SOURCE_HASH
#define AIOKQ_SOURCE_HASH "unknown"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define AIOKQ_LIKELY(x) __builtin_expect(!!(x), 1)
#define AIOKQ_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define AIOKQ_LIKELY(x) (x)
#define AIOKQ_UNLIKELY(x) (x)
#endif

/* Any last_offset_delta can be added to a base offset up to this one without an overflow. */
#define AIOKQ_TOP_OFFSET INT64_C(0x7ffffffeffffffff)

/* splitmix64's constants. */
#define AIOKQ_GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define AIOKQ_MIX_1 UINT64_C(0xbf58476d1ce4e5b9)
#define AIOKQ_MIX_2 UINT64_C(0x94d049bb133111eb)

/* ---------------------------------------------------------------- clock */

/* Milliseconds since the epoch, as Java's System.currentTimeMillis(). Not the coarse clock: it lags
 * by up to 4 ms, so a record could get an earlier time than the caller read before the send. */
static inline long long aiokq_now_ms(void) {
    struct timespec now;
#if defined(CLOCK_REALTIME)
    clock_gettime(CLOCK_REALTIME, &now);
#else
    timespec_get(&now, TIME_UTC);
#endif
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Seconds since an arbitrary start, for differences only; time.monotonic() may start elsewhere. */
static inline double aiokq_monotonic(void) {
    struct timespec now;
#if defined(CLOCK_MONOTONIC)
    clock_gettime(CLOCK_MONOTONIC, &now);
#else
    timespec_get(&now, TIME_UTC);
#endif
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* This thread's hook for asynchronous generators, as a borrowed reference; NULL if there is none.
 * The event loops of asyncio and uvloop set it to one of their methods while they run. */
static inline void *aiokq_loop_hook(void) {
    return (void *)PyThreadState_Get()->async_gen_firstiter;
}

/* ---------------------------------------------------------------- varints */

static inline uint64_t aiokq_zigzag(int64_t value) {
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

/* Size of a zigzag varint in bytes, 1 to 10. */
static inline int aiokq_varint_size(int64_t value) {
    uint64_t bits = aiokq_zigzag(value);
    int size = 1;
    while (bits >= 0x80) {
        bits >>= 7;
        size++;
    }
    return size;
}

static inline unsigned char *aiokq_put_varint(unsigned char *at, int64_t value) {
    uint64_t bits = aiokq_zigzag(value);
    while (bits >= 0x80) {
        *at++ = (unsigned char)(bits | 0x80);
        bits >>= 7;
    }
    *at++ = (unsigned char)bits;
    return at;
}

/* Reads one zigzag varint of at most `most` bits from [at, end); returns the position after it, or
 * NULL if the varint is incomplete or too long. */
static inline const unsigned char *aiokq_get_varint(const unsigned char *at,
                                                    const unsigned char *end, int most,
                                                    int64_t *value) {
    uint64_t bits;
    int shift;
    if (AIOKQ_UNLIKELY(at >= end))
        return NULL;
    bits = *at++;
    if (AIOKQ_UNLIKELY(bits >= 0x80)) {
        bits &= 0x7f;
        for (shift = 7;; shift += 7) {
            uint64_t byte;
            if (at >= end || shift >= most)
                return NULL;
            byte = *at++;
            if (shift == 63 && byte > 1)
                return NULL;
            bits |= (byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
        }
        if (most == 32 && bits > 0xffffffffu)
            return NULL;
    }
    *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
    return at;
}

/* ---------------------------------------------------------------- big-endian numbers */

static inline uint32_t aiokq_u32(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int32_t aiokq_i32(const unsigned char *at) { return (int32_t)aiokq_u32(at); }

static inline int16_t aiokq_i16(const unsigned char *at) {
    return (int16_t)((uint16_t)at[0] << 8 | at[1]);
}

static inline int64_t aiokq_i64(const unsigned char *at) {
    return (int64_t)((uint64_t)aiokq_u32(at) << 32 | aiokq_u32(at + 4));
}

/* Addition that wraps around, because hostile numbers may overflow and the overflow of signed
 * numbers is undefined in C. */
static inline int64_t aiokq_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t aiokq_micros(int64_t ms) { return (int64_t)((uint64_t)ms * 1000u); }

static inline int aiokq_is_ascii(const unsigned char *at, int64_t size) {
    unsigned char any = 0;
    while (size-- > 0)
        any |= *at++;
    return any < 0x80;
}

/* ---------------------------------------------------------------- murmur2, as in Java's clients */

static inline uint32_t aiokq_murmur2(const unsigned char *data, Py_ssize_t length) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)length;
    Py_ssize_t words = length >> 2;
    while (words-- > 0) {
        uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                     (uint32_t)data[3] << 24;
        k *= m;
        k ^= k >> 24;
        k *= m;
        h *= m;
        h ^= k;
        data += 4;
    }
    switch (length & 3) {
    case 3:
        h ^= (uint32_t)data[2] << 16; /* fall through */
    case 2:
        h ^= (uint32_t)data[1] << 8; /* fall through */
    case 1:
        h ^= data[0];
        h *= m;
    }
    h ^= h >> 13;
    h *= m;
    h ^= h >> 15;
    return h;
}

#endif
