/* Milliseconds of a clock. Needs no Python.
 * Tests: tests/unit/fastpath/test_gateway_pool.py. */
#ifndef AIOKQ_GATEWAY_CLOCK_H
#define AIOKQ_GATEWAY_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t aiokq_ms(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#endif
