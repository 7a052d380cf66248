/* Owns what Cython's pure mode cannot say: CRC-32C by instruction, the byte loops of varints and
 * murmur2, and the two type slots (am_send, tp_iternext) behind `await` and `async for`.
 * It owns no state of Kafka's: that is _core.py, whose pure branches do the same in Python.
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

/* Offsets above it could overflow once a batch's last_offset_delta is added. */
#define AIOKQ_TOP_OFFSET INT64_C(0x7ffffffeffffffff)

/* splitmix64's constants. */
#define AIOKQ_GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define AIOKQ_MIX_1 UINT64_C(0xbf58476d1ce4e5b9)
#define AIOKQ_MIX_2 UINT64_C(0x94d049bb133111eb)

/* ---------------------------------------------------------------- clock */

/* Milliseconds since the epoch, as Java's System.currentTimeMillis(). Not the coarse clock: it
 * lags by up to 4 ms, so that a record could be older than a timestamp taken before the send. */
static inline long long aiokq_now_ms(void) {
    struct timespec now;
#if defined(CLOCK_REALTIME)
    clock_gettime(CLOCK_REALTIME, &now);
#else
    timespec_get(&now, TIME_UTC);
#endif
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The hook for asynchronous generators of this thread, borrowed; NULL if there is none. asyncio's
 * loops and uvloop's set it to a method of their own while they run. */
static inline void *aiokq_loop_hook(void) {
    return (void *)PyThreadState_Get()->async_gen_firstiter;
}

/* ---------------------------------------------------------------- varints */

static inline uint64_t aiokq_zigzag(int64_t value) {
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

/* Bytes of a zigzag varint, 1 to 10. */
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

/* Reads one varint of at most `most` bits from [at, end); NULL if it runs over the end or is
 * too long. */
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

/* Sums that a hostile number may overflow; signed overflow would be undefined. */
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

/* ---------------------------------------------------------------- one record of a v2 batch */

typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    const unsigned char *key;
    int64_t key_size; /* negative: null */
    const unsigned char *value;
    int64_t value_size; /* negative: null */
    const unsigned char *headers;
    int64_t header_count;
    const unsigned char *end; /* where the next record begins */
} aiokq_record;

/* One header at `at`; where the next one begins, or NULL. */
static inline const unsigned char *aiokq_parse_header(const unsigned char *at,
                                                      const unsigned char *end,
                                                      const unsigned char **name,
                                                      int64_t *name_size,
                                                      const unsigned char **value,
                                                      int64_t *value_size) {
    at = aiokq_get_varint(at, end, 32, name_size);
    if (at == NULL || *name_size < 0 || *name_size > end - at)
        return NULL;
    *name = at;
    at = aiokq_get_varint(at + *name_size, end, 32, value_size);
    if (at == NULL || *value_size > end - at)
        return NULL;
    *value = at;
    return *value_size > 0 ? at + *value_size : at;
}

/* Reads one record, all but the contents of its headers, never past `end`: 0 if it is malformed. */
static inline int aiokq_parse_record(const unsigned char *at, const unsigned char *end,
                                     aiokq_record *record) {
    int64_t size;
    at = aiokq_get_varint(at, end, 32, &size);
    if (at == NULL || size < 1 || size > end - at)
        return 0;
    end = at + size;
    record->end = end;
    at = aiokq_get_varint(at + 1, end, 64, &record->timestamp_delta); /* past the attributes */
    if (at == NULL)
        return 0;
    at = aiokq_get_varint(at, end, 32, &record->offset_delta);
    if (at == NULL)
        return 0;
    at = aiokq_get_varint(at, end, 32, &record->key_size);
    if (at == NULL || record->key_size > end - at)
        return 0;
    record->key = at;
    if (record->key_size > 0)
        at += record->key_size;
    at = aiokq_get_varint(at, end, 32, &record->value_size);
    if (at == NULL || record->value_size > end - at)
        return 0;
    record->value = at;
    if (record->value_size > 0)
        at += record->value_size;
    at = aiokq_get_varint(at, end, 32, &record->header_count);
    if (at == NULL || record->header_count < 0 || record->header_count > (end - at) / 2)
        return 0;
    record->headers = at;
    return record->header_count > 0 || at == end;
}

/* ---------------------------------------------------------------- murmur2, as Java's clients */

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

/* ---------------------------------------------------------------- CRC-32C (Castagnoli) */

/* Three streams hide the latency of the crc32 instruction (three cycles, one issued a cycle);
 * two tables then shift a stream's CRC over the bytes that follow it. Without the instruction:
 * slicing by eight. Technique: Mark Adler's crc32c.c, and Gopal et al., "Fast CRC Computation
 * for iSCSI Polynomial Using CRC32 Instruction" (Intel, 2011). */

#define AIOKQ_POLYNOMIAL 0x82f63b78u
#define AIOKQ_LONG 1024
#define AIOKQ_SHORT 128

static uint32_t aiokq_slices[8][256];
static uint32_t aiokq_long_shift[4][256];
static uint32_t aiokq_short_shift[4][256];

static uint32_t aiokq_gf2_times(const uint32_t *matrix, uint32_t vector) {
    uint32_t sum = 0;
    while (vector) {
        if (vector & 1)
            sum ^= *matrix;
        vector >>= 1;
        matrix++;
    }
    return sum;
}

static void aiokq_gf2_square(uint32_t *square, const uint32_t *matrix) {
    for (int i = 0; i < 32; i++)
        square[i] = aiokq_gf2_times(matrix, matrix[i]);
}

/* The table that advances a CRC over `length` zero bytes; length is a power of two. */
static void aiokq_shift_table(uint32_t table[4][256], size_t length) {
    uint32_t even[32], odd[32], *operator_ = NULL;
    odd[0] = AIOKQ_POLYNOMIAL;
    for (int i = 1; i < 32; i++)
        odd[i] = 1u << (i - 1);
    aiokq_gf2_square(even, odd); /* 2 bits */
    aiokq_gf2_square(odd, even); /* 4 bits */
    for (;;) {
        aiokq_gf2_square(even, odd);
        operator_ = even;
        length >>= 1;
        if (length == 0)
            break;
        aiokq_gf2_square(odd, even);
        operator_ = odd;
        length >>= 1;
        if (length == 0)
            break;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int byte = 0; byte < 4; byte++)
            table[byte][n] = aiokq_gf2_times(operator_, n << (8 * byte));
}

static inline uint32_t aiokq_shift(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^
           table[3][crc >> 24];
}

static uint32_t aiokq_crc32c_table(uint32_t crc, const unsigned char *at, size_t length) {
    crc = ~crc;
    while (length >= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = aiokq_slices[7][low & 0xff] ^ aiokq_slices[6][low >> 8 & 0xff] ^
              aiokq_slices[5][low >> 16 & 0xff] ^ aiokq_slices[4][low >> 24] ^
              aiokq_slices[3][at[4]] ^ aiokq_slices[2][at[5]] ^ aiokq_slices[1][at[6]] ^
              aiokq_slices[0][at[7]];
        at += 8;
        length -= 8;
    }
    while (length--)
        crc = aiokq_slices[0][(crc ^ *at++) & 0xff] ^ (crc >> 8);
    return ~crc;
}

static uint32_t (*aiokq_crc32c_best)(uint32_t, const unsigned char *, size_t) = aiokq_crc32c_table;

#define AIOKQ_THREE_STREAMS(STEP)                                                               \
    while (length >= 3 * AIOKQ_LONG) {                                                          \
        uint64_t one = 0, two = 0;                                                              \
        const unsigned char *stop = at + AIOKQ_LONG;                                            \
        do {                                                                                    \
            uint64_t a, b, c;                                                                   \
            memcpy(&a, at, 8);                                                                  \
            memcpy(&b, at + AIOKQ_LONG, 8);                                                     \
            memcpy(&c, at + 2 * AIOKQ_LONG, 8);                                                 \
            state = STEP(state, a);                                                             \
            one = STEP(one, b);                                                                 \
            two = STEP(two, c);                                                                 \
            at += 8;                                                                            \
        } while (at < stop);                                                                    \
        state = aiokq_shift(aiokq_long_shift, (uint32_t)state) ^ one;                           \
        state = aiokq_shift(aiokq_long_shift, (uint32_t)state) ^ two;                           \
        at += 2 * AIOKQ_LONG;                                                                   \
        length -= 3 * AIOKQ_LONG;                                                               \
    }                                                                                           \
    while (length >= 3 * AIOKQ_SHORT) {                                                         \
        uint64_t one = 0, two = 0;                                                              \
        const unsigned char *stop = at + AIOKQ_SHORT;                                           \
        do {                                                                                    \
            uint64_t a, b, c;                                                                   \
            memcpy(&a, at, 8);                                                                  \
            memcpy(&b, at + AIOKQ_SHORT, 8);                                                    \
            memcpy(&c, at + 2 * AIOKQ_SHORT, 8);                                                \
            state = STEP(state, a);                                                             \
            one = STEP(one, b);                                                                 \
            two = STEP(two, c);                                                                 \
            at += 8;                                                                            \
        } while (at < stop);                                                                    \
        state = aiokq_shift(aiokq_short_shift, (uint32_t)state) ^ one;                          \
        state = aiokq_shift(aiokq_short_shift, (uint32_t)state) ^ two;                          \
        at += 2 * AIOKQ_SHORT;                                                                  \
        length -= 3 * AIOKQ_SHORT;                                                              \
    }                                                                                           \
    while (length >= 8) {                                                                       \
        uint64_t a;                                                                             \
        memcpy(&a, at, 8);                                                                      \
        state = STEP(state, a);                                                                 \
        at += 8;                                                                                \
        length -= 8;                                                                            \
    }

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#include <nmmintrin.h>

#define AIOKQ_HARDWARE_CRC 1

__attribute__((target("sse4.2"))) static uint32_t
aiokq_crc32c_hardware(uint32_t crc, const unsigned char *at, size_t length) {
    uint64_t state = ~crc;
    AIOKQ_THREE_STREAMS(_mm_crc32_u64)
    while (length--)
        state = _mm_crc32_u8((uint32_t)state, *at++);
    return ~(uint32_t)state;
}

static int aiokq_has_hardware_crc(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}

#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__) &&                       \
    (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#if defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define AIOKQ_HARDWARE_CRC 1

/* Inline assembly, not <arm_acle.h>: the header hides its functions unless the whole file is
 * compiled for a processor that has them. */
static inline uint64_t aiokq_arm_crc_u64(uint64_t crc, uint64_t data) {
    uint32_t out;
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w1, %x2" : "=r"(out) : "r"((uint32_t)crc), "r"(data));
    return out;
}

static inline uint32_t aiokq_arm_crc_u8(uint32_t crc, unsigned char data) {
    uint32_t out;
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w1, %w2" : "=r"(out) : "r"(crc), "r"((uint32_t)data));
    return out;
}

static uint32_t aiokq_crc32c_hardware(uint32_t crc, const unsigned char *at, size_t length) {
    uint64_t state = (uint32_t)~crc;
    AIOKQ_THREE_STREAMS(aiokq_arm_crc_u64)
    while (length--)
        state = aiokq_arm_crc_u8((uint32_t)state, *at++);
    return ~(uint32_t)state;
}

static int aiokq_has_hardware_crc(void) {
#if defined(__APPLE__)
    return 1; /* every 64-bit Apple processor has it */
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return 0;
#endif
}
#endif

/* Fills the tables and picks the fastest way this processor has; called once, at import. */
static void aiokq_crc32c_setup(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ AIOKQ_POLYNOMIAL : crc >> 1;
        aiokq_slices[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int slice = 1; slice < 8; slice++)
            aiokq_slices[slice][n] = aiokq_slices[0][aiokq_slices[slice - 1][n] & 0xff] ^
                                     aiokq_slices[slice - 1][n] >> 8;
    aiokq_shift_table(aiokq_long_shift, AIOKQ_LONG);
    aiokq_shift_table(aiokq_short_shift, AIOKQ_SHORT);
#if defined(AIOKQ_HARDWARE_CRC)
    if (aiokq_has_hardware_crc())
        aiokq_crc32c_best = aiokq_crc32c_hardware;
#endif
}

static inline uint32_t aiokq_crc32c(uint32_t crc, const unsigned char *at, Py_ssize_t length) {
    return aiokq_crc32c_best(crc, at, (size_t)length);
}

/* ---------------------------------------------------------------- a request, from the front */

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

/* ---------------------------------------------------------------- await, without a wrapper */

/* One step of an awaitable: a new reference to what it yields (*yielded = 1) or returns, or
 * NULL with an exception set. */
typedef PyObject *(*aiokq_step)(PyObject *self, int *yielded);

/* Cython leaves am_send empty, and its tp_iternext raises a StopIteration per await. 3.11 asks
 * for am_send (PyIter_Send); 3.12 and later call tp_iternext, so there one StopIteration is used
 * again and again while nobody else holds it. Not under a free-threaded build: the test of the
 * reference count needs the lock. */
static PySendResult aiokq_send(aiokq_step step, PyObject *self, PyObject **result) {
    int yielded = 0;
    *result = step(self, &yielded);
    if (*result == NULL)
        return PYGEN_ERROR;
    return yielded ? PYGEN_NEXT : PYGEN_RETURN;
}

static PyObject *aiokq_next(aiokq_step step, PyObject *self) {
    int yielded = 0;
    PyObject *value = step(self, &yielded);
    if (value == NULL || yielded)
        return value;
#if PY_VERSION_HEX >= 0x030c0000 && !defined(Py_GIL_DISABLED)
    {
        static PyObject *shared = NULL;
        PyStopIterationObject *stop = (PyStopIterationObject *)shared;
        if (stop != NULL && Py_REFCNT(shared) == 1 && stop->traceback == NULL &&
            stop->context == NULL && stop->cause == NULL && stop->dict == NULL) {
            Py_XSETREF(stop->value, value);
            PyErr_SetRaisedException(Py_NewRef(shared));
            return NULL;
        }
        {
            PyObject *fresh = PyObject_CallNoArgs(PyExc_StopIteration);
            if (fresh == NULL) {
                Py_DECREF(value);
                return NULL;
            }
            Py_XSETREF(((PyStopIterationObject *)fresh)->value, value);
            Py_XSETREF(shared, Py_NewRef(fresh));
            PyErr_SetRaisedException(fresh);
            return NULL;
        }
    }
#else
    {
        /* Not PyErr_SetObject(StopIteration, value): it would unpack a tuple. */
        PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
        Py_DECREF(value);
        if (stop != NULL) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DECREF(stop);
        }
        return NULL;
    }
#endif
}

/* Gives a type both slots; NAME makes the two C functions that carry its step. */
#define AIOKQ_AWAITABLE(NAME)                                                                   \
    static aiokq_step aiokq_step_##NAME;                                                        \
    static PySendResult aiokq_send_##NAME(PyObject *self, PyObject *Py_UNUSED(value),           \
                                          PyObject **result) {                                  \
        return aiokq_send(aiokq_step_##NAME, self, result);                                     \
    }                                                                                           \
    static PyObject *aiokq_next_##NAME(PyObject *self) {                                        \
        return aiokq_next(aiokq_step_##NAME, self);                                             \
    }                                                                                           \
    static void aiokq_patch_##NAME(PyObject *type, aiokq_step step) {                           \
        PyTypeObject *patched = (PyTypeObject *)type;                                           \
        aiokq_step_##NAME = step;                                                               \
        patched->tp_iternext = aiokq_next_##NAME;                                               \
        if (patched->tp_as_async != NULL)                                                       \
            patched->tp_as_async->am_send = aiokq_send_##NAME;                                  \
        PyType_Modified(patched);                                                               \
    }

AIOKQ_AWAITABLE(delivery)
AIOKQ_AWAITABLE(wait)
AIOKQ_AWAITABLE(wait_all)
AIOKQ_AWAITABLE(stream)
AIOKQ_AWAITABLE(stream_wait)

#endif
