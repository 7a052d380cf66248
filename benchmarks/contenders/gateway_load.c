/* The senders of the suite `gateway`, and the bare loop that inputs are compared with.
 *
 *     gateway_load flood KIND ADDRESS TOPIC COUNT BYTES BLOCK
 *         sends COUNT messages at full speed, blocking. BLOCK 0: one call of send per message;
 *         otherwise, on streams, one call per BLOCK bytes.
 *     gateway_load topics KIND ADDRESS PREFIX COUNT BYTES
 *         sends one message to each of the topics PREFIX0, PREFIX1 ...
 *     gateway_load pace KIND ADDRESS TOPIC COUNT BYTES RATE block|try
 *         sends RATE messages a second. `block` waits while the queue is full; `try` drops the
 *         message for which the queue is full. Prints JSON: sent, eagain, seconds, and the duration
 *         of the calls in microseconds: median, p99, p999, most.
 *     gateway_load read PATH
 *         a bare loop of recvmmsg on a datagram socket, which throws away what it reads, until
 *         SIGTERM.
 *
 * KIND is datagram, stream or tcp; ADDRESS is a path or a port. Values have BYTES bytes of
 * hexadecimal digits, different in each message, so that compression has work to do. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "aiokq_gateway.h"

#define BURST 64
#define LARGEST 65536
#define LATE_NS 1000000 /* a sender that is later than this does not catch up */

static void fail(const char *what, int code)
{
    fprintf(stderr, "%s: %s\n", what, code > 0 ? strerror(code) : "wrong arguments");
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static aiokq_gateway opened(const char *kind, const char *address)
{
    aiokq_gateway gateway = AIOKQ_GATEWAY_CLOSED;
    int code;

    if (strcmp(kind, "datagram") == 0)
        code = aiokq_gateway_open_unix_datagram(&gateway, address);
    else if (strcmp(kind, "stream") == 0)
        code = aiokq_gateway_open_unix_stream(&gateway, address);
    else
        code = aiokq_gateway_open_tcp(&gateway, (uint16_t)atoi(address));
    if (code != AIOKQ_GATEWAY_OK)
        fail("connect", code);
    return gateway;
}

static void vary(char *value, size_t size)
{
    static uint64_t state = 88172645463325252ull;
    size_t n;
    int digit;

    for (n = 0; n < size;) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (digit = 0; digit < 16 && n < size; digit++)
            value[n++] = "0123456789abcdef"[(state >> (4 * digit)) & 15];
    }
}

static size_t encoded(uint8_t *at, size_t room, const char *topic, const char *value, size_t bytes)
{
    size_t size;
    int code = aiokq_gateway_encode(at, room, &size, topic, strlen(topic), aiokq_gateway_now_ms(),
                                    NULL, 0, value, bytes);

    if (code != AIOKQ_GATEWAY_OK)
        fail("encode", code);
    return size;
}

static void flood(aiokq_gateway *gateway, const char *topic, long count, size_t bytes, size_t block)
{
    size_t room = block + bytes + strlen(topic) + 64, filled = 0;
    uint8_t *buffer = malloc(room);
    char *value = malloc(bytes + 1);
    int code;

    vary(value, bytes);
    for (; count > 0; count--) {
        filled += encoded(buffer + filled, room - filled, topic, value, bytes);
        if (filled < block && count > 1)
            continue;
        code = aiokq_gateway_send(gateway, buffer, filled);
        if (code != AIOKQ_GATEWAY_OK)
            fail("send", code);
        filled = 0;
    }
}

static void topics(aiokq_gateway *gateway, const char *prefix, long count, size_t bytes)
{
    char *topic = malloc(strlen(prefix) + 24);
    long n;

    for (n = 0; n < count; n++) {
        sprintf(topic, "%s%ld", prefix, n);
        flood(gateway, topic, 1, bytes, 0);
    }
}

static int by_size(const void *one, const void *other)
{
    int64_t left = *(const int64_t *)one, right = *(const int64_t *)other;

    return (left > right) - (left < right);
}

static void pace(aiokq_gateway *gateway, const char *topic, long count, size_t bytes, long rate,
                 int blocking)
{
    int64_t step = 1000000000 / rate, started, due, before, *took = malloc(sizeof *took * count);
    size_t room = bytes + strlen(topic) + 64, size;
    uint8_t *buffer = malloc(room);
    char *value = malloc(bytes + 1);
    long n, sent = 0, eagain = 0;
    int code;

    started = due = now_ns();
    for (n = 0; n < count; n++, due += step) {
        before = now_ns();
        if (before < due) {
            struct timespec until = {due / 1000000000, due % 1000000000};

            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        } else if (before - due > LATE_NS) {
            due = before;
        }
        vary(value, bytes);
        size = encoded(buffer, room, topic, value, bytes);
        before = now_ns();
        code = blocking ? aiokq_gateway_send(gateway, buffer, size)
                        : aiokq_gateway_try_send(gateway, buffer, size);
        took[n] = now_ns() - before;
        if (code == AIOKQ_GATEWAY_OK)
            sent++;
        else if (code == EAGAIN)
            eagain++;
        else
            fail("send", code);
    }
    qsort(took, (size_t)count, sizeof *took, by_size);
    printf("{\"sent\": %ld, \"eagain\": %ld, \"seconds\": %.6f, \"median\": %.3f, \"p99\": %.3f, "
           "\"p999\": %.3f, \"most\": %.3f}\n",
           sent, eagain, (now_ns() - started) / 1e9, took[count / 2] / 1e3,
           took[count * 99 / 100] / 1e3, took[count * 999 / 1000] / 1e3, took[count - 1] / 1e3);
}

static void read_datagrams(const char *path)
{
    static struct mmsghdr messages[BURST];
    static struct iovec blocks[BURST];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0), n;

    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("bind", errno);
    for (n = 0; n < BURST; n++) {
        blocks[n].iov_base = malloc(LARGEST);
        blocks[n].iov_len = LARGEST;
        messages[n].msg_hdr.msg_iov = blocks + n;
        messages[n].msg_hdr.msg_iovlen = 1;
    }
    puts("ready");
    fflush(stdout);
    while (recvmmsg(fd, messages, BURST, MSG_WAITFORONE, NULL) > 0)
        continue;
    fail("recvmmsg", errno);
}

int main(int given, char **words)
{
    aiokq_gateway gateway = AIOKQ_GATEWAY_CLOSED;

    if (given == 3 && strcmp(words[1], "read") == 0)
        read_datagrams(words[2]);
    if (given < 7)
        fail("gateway_load", 0);
    gateway = opened(words[2], words[3]);
    if (given == 8 && strcmp(words[1], "flood") == 0)
        flood(&gateway, words[4], atol(words[5]), (size_t)atol(words[6]), (size_t)atol(words[7]));
    else if (given == 7 && strcmp(words[1], "topics") == 0)
        topics(&gateway, words[4], atol(words[5]), (size_t)atol(words[6]));
    else if (given == 9 && strcmp(words[1], "pace") == 0)
        pace(&gateway, words[4], atol(words[5]), (size_t)atol(words[6]), atol(words[7]),
             strcmp(words[8], "block") == 0);
    else
        fail("gateway_load", 0);
    aiokq_gateway_close(&gateway);
    return 0;
}
