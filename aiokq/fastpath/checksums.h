/* CRC-32C (Castagnoli), with the processor's instruction if it has one.
 * Each extension that includes this file has its own tables, and calls aiokq_crc32c_setup() at
 * import.
 * Tests: tests/unit/fastpath/test_checksums.py. */
#ifndef AIOKQ_CHECKSUMS_H
#define AIOKQ_CHECKSUMS_H

#include "aiokq/fastpath/native.h"

/* The crc32 instruction takes three cycles, but a processor can start one in each cycle. Therefore
 * the CRCs of three adjacent streams are computed at a time; tables then shift the CRC of a stream
 * over the bytes of the next one. A processor without the instruction uses slicing by eight.
 * Source: Mark Adler's crc32c.c, and Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using
 * CRC32 Instruction" (Intel, 2011). */

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
    return 1; /* every 64-bit Apple processor has the instruction */
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
    return 0;
#endif
}
#endif

/* Fills the tables and selects the fastest implementation for this processor; called at import. */
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

#endif
