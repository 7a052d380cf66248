/* aiokq_gateway.h: write messages to the gateway of aiokq from C99 or C++.
 *
 * The whole client is this header; it needs POSIX sockets and nothing else.
 *
 *     aiokq_gateway gateway = AIOKQ_GATEWAY_CLOSED;
 *     uint8_t buffer[1024];
 *     size_t size;
 *     int code = aiokq_gateway_open_unix_datagram(&gateway, "/run/aiokq/gateway.sock");
 *     if (code == 0)
 *         code = aiokq_gateway_encode(buffer, sizeof buffer, &size, "orders", 6,
 *                                     aiokq_gateway_now_ms(), "u7", 2, "{\"n\":1}", 7);
 *     if (code == 0)
 *         code = aiokq_gateway_send(&gateway, buffer, size);
 *     aiokq_gateway_close(&gateway);
 *
 * Functions return 0 (AIOKQ_GATEWAY_OK), one of the negative codes below, or an errno. The codes
 * are those of the client libraries of Bruce and Dory. No function prints, allocates memory or has
 * state of its own. A socket belongs to one thread at a time; a forked child opens its own.
 *
 * A gateway never answers. A sent message is in the kernel's socket buffer; whether Kafka has it is
 * shown by the gateway's reports.
 *
 * Format: all integers are big-endian; a datagram is one message, on a stream they follow each
 * other. Size int32 (of the whole message), ApiKey int16 (256, or 257 with a partition key),
 * ApiVersion int16 (0), flags int16 (0), partition key int32 (only 257), topic (int16 size, bytes),
 * timestamp int64 (milliseconds since 1970), key (int32 size, bytes), value (int32 size, bytes).
 */
#ifndef AIOKQ_GATEWAY_H
#define AIOKQ_GATEWAY_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AIOKQ_GATEWAY_OK 0
/* The buffer does not have room for the message; `size` says how much it needs. */
#define AIOKQ_GATEWAY_BUFFER_TOO_SMALL (-1)
/* The topic has more than 32767 bytes. */
#define AIOKQ_GATEWAY_TOPIC_TOO_LARGE (-2)
/* The message would have more than 2147483647 bytes. */
#define AIOKQ_GATEWAY_MESSAGE_TOO_LARGE (-3)
/* The socket is open already. */
#define AIOKQ_GATEWAY_ALREADY_OPEN (-4)
/* The path does not fit into the address of a UNIX socket. */
#define AIOKQ_GATEWAY_PATH_TOO_LONG (-6)

#define AIOKQ_GATEWAY_MAX_TOPIC_SIZE 32767
#define AIOKQ_GATEWAY_MAX_MESSAGE_SIZE 2147483647

/* A socket to the gateway. Its initial value is AIOKQ_GATEWAY_CLOSED. */
typedef struct {
    int fd;
} aiokq_gateway;

#define AIOKQ_GATEWAY_CLOSED {-1}

/* --- Messages ------------------------------------------------------------------------------- */

/* Set `*size` to the size of a message. `with_partition_key` is 0 or 1.
 *
 * Returns 0, AIOKQ_GATEWAY_TOPIC_TOO_LARGE, AIOKQ_GATEWAY_MESSAGE_TOO_LARGE, or EINVAL for a topic
 * of no bytes. */
static inline int aiokq_gateway_size(size_t *size, size_t topic_size, size_t key_size,
                                     size_t value_size, int with_partition_key)
{
    size_t most = AIOKQ_GATEWAY_MAX_MESSAGE_SIZE;
    size_t fixed = with_partition_key ? 32 : 28;

    if (topic_size == 0)
        return EINVAL;
    if (topic_size > AIOKQ_GATEWAY_MAX_TOPIC_SIZE)
        return AIOKQ_GATEWAY_TOPIC_TOO_LARGE;
    most -= fixed + topic_size;
    if (key_size > most || value_size > most - key_size)
        return AIOKQ_GATEWAY_MESSAGE_TOO_LARGE;
    *size = fixed + topic_size + key_size + value_size;
    return AIOKQ_GATEWAY_OK;
}

static inline uint8_t *aiokq_gateway_put_(uint8_t *at, uint64_t number, int bytes)
{
    while (bytes-- > 0)
        *at++ = (uint8_t)(number >> (8 * bytes));
    return at;
}

static inline uint8_t *aiokq_gateway_copy_(uint8_t *at, const void *data, size_t size)
{
    if (size > 0) /* memcpy must not get a null pointer */
        memcpy(at, data, size);
    return at + size;
}

static inline int aiokq_gateway_encode_(void *buffer, size_t buffer_size, size_t *size,
                                        int with_partition_key, uint32_t partition_key,
                                        const char *topic, size_t topic_size, int64_t timestamp_ms,
                                        const void *key, size_t key_size, const void *value,
                                        size_t value_size)
{
    uint8_t *at = (uint8_t *)buffer;
    int code = aiokq_gateway_size(size, topic_size, key_size, value_size, with_partition_key);

    if (code != AIOKQ_GATEWAY_OK)
        return code;
    if (buffer_size < *size)
        return AIOKQ_GATEWAY_BUFFER_TOO_SMALL;
    at = aiokq_gateway_put_(at, *size, 4);
    at = aiokq_gateway_put_(at, with_partition_key ? 257 : 256, 2);
    at = aiokq_gateway_put_(at, 0, 4); /* version and flags */
    if (with_partition_key)
        at = aiokq_gateway_put_(at, partition_key, 4);
    at = aiokq_gateway_put_(at, topic_size, 2);
    at = aiokq_gateway_copy_(at, topic, topic_size);
    at = aiokq_gateway_put_(at, (uint64_t)timestamp_ms, 8);
    at = aiokq_gateway_put_(at, key_size, 4);
    at = aiokq_gateway_copy_(at, key, key_size);
    at = aiokq_gateway_put_(at, value_size, 4);
    aiokq_gateway_copy_(at, value, value_size);
    return AIOKQ_GATEWAY_OK;
}

/* Encode a message into `buffer` and set `*size` to its size. The gateway chooses the partition.
 * `key` and `value` may be NULL if their size is 0. A buffer of no bytes asks for the size.
 *
 * Returns 0, AIOKQ_GATEWAY_BUFFER_TOO_SMALL, or what aiokq_gateway_size returns. */
static inline int aiokq_gateway_encode(void *buffer, size_t buffer_size, size_t *size,
                                       const char *topic, size_t topic_size, int64_t timestamp_ms,
                                       const void *key, size_t key_size, const void *value,
                                       size_t value_size)
{
    return aiokq_gateway_encode_(buffer, buffer_size, size, 0, 0, topic, topic_size, timestamp_ms,
                                 key, key_size, value, value_size);
}

/* The same for a message whose partition is `partition_key` modulo the number of partitions. */
static inline int aiokq_gateway_encode_partition_key(void *buffer, size_t buffer_size, size_t *size,
                                                     uint32_t partition_key, const char *topic,
                                                     size_t topic_size, int64_t timestamp_ms,
                                                     const void *key, size_t key_size,
                                                     const void *value, size_t value_size)
{
    return aiokq_gateway_encode_(buffer, buffer_size, size, 1, partition_key, topic, topic_size,
                                 timestamp_ms, key, key_size, value, value_size);
}

/* Milliseconds since 1970. */
static inline int64_t aiokq_gateway_now_ms(void)
{
    struct timeval now;

    gettimeofday(&now, NULL);
    return (int64_t)now.tv_sec * 1000 + now.tv_usec / 1000;
}

/* --- Sockets -------------------------------------------------------------------------------- */

static inline int aiokq_gateway_connect_(aiokq_gateway *gateway, int family, int type,
                                         const struct sockaddr *address, size_t address_size)
{
#ifdef SOCK_CLOEXEC
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
#else
    int fd = socket(family, type, 0);
#endif
    int code;

    if (fd < 0)
        return errno;
#ifndef SOCK_CLOEXEC
    fcntl(fd, F_SETFD, FD_CLOEXEC);
#endif
#ifdef SO_NOSIGPIPE /* where MSG_NOSIGNAL is missing */
    {
        int on = 1;
        setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
    }
#endif
    if (connect(fd, address, (socklen_t)address_size) != 0) {
        code = errno;
        close(fd);
        return code;
    }
    gateway->fd = fd;
    return AIOKQ_GATEWAY_OK;
}

static inline int aiokq_gateway_open_unix_(aiokq_gateway *gateway, int type, const char *path)
{
    struct sockaddr_un address;
    size_t length = strlen(path);

    if (gateway->fd >= 0)
        return AIOKQ_GATEWAY_ALREADY_OPEN;
    if (length >= sizeof address.sun_path)
        return AIOKQ_GATEWAY_PATH_TOO_LONG;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path, length);
    return aiokq_gateway_connect_(gateway, AF_UNIX, type, (const struct sockaddr *)&address,
                                  sizeof address);
}

/* Open a socket to a gateway that listens at `path`.
 *
 * Returns 0, AIOKQ_GATEWAY_ALREADY_OPEN, AIOKQ_GATEWAY_PATH_TOO_LONG, or an errno: ENOENT or
 * ECONNREFUSED if no gateway listens there. */
static inline int aiokq_gateway_open_unix_datagram(aiokq_gateway *gateway, const char *path)
{
    return aiokq_gateway_open_unix_(gateway, SOCK_DGRAM, path);
}

static inline int aiokq_gateway_open_unix_stream(aiokq_gateway *gateway, const char *path)
{
    return aiokq_gateway_open_unix_(gateway, SOCK_STREAM, path);
}

/* Open a socket to a gateway that listens on `port` of 127.0.0.1. */
static inline int aiokq_gateway_open_tcp(aiokq_gateway *gateway, uint16_t port)
{
    struct sockaddr_in address;
    uint8_t *at = (uint8_t *)&address.sin_port;

    if (gateway->fd >= 0)
        return AIOKQ_GATEWAY_ALREADY_OPEN;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    aiokq_gateway_put_(at, port, 2);
    aiokq_gateway_put_((uint8_t *)&address.sin_addr, 0x7f000001, 4);
    return aiokq_gateway_connect_(gateway, AF_INET, SOCK_STREAM, (const struct sockaddr *)&address,
                                  sizeof address);
}

/* Close the socket. What was sent stays with the kernel. May be called twice. */
static inline int aiokq_gateway_close(aiokq_gateway *gateway)
{
    int fd = gateway->fd;

    gateway->fd = -1;
    if (fd >= 0 && close(fd) != 0)
        return errno;
    return AIOKQ_GATEWAY_OK;
}

static inline int aiokq_gateway_send_(aiokq_gateway *gateway, const void *message, size_t size,
                                      int flags)
{
    const uint8_t *at = (const uint8_t *)message;
    const uint8_t *end = at + size;
    ssize_t done;
    int code;

    if (gateway->fd < 0)
        return EBADF;
#ifdef MSG_NOSIGNAL
    flags |= MSG_NOSIGNAL;
#endif
    while (at < end) {
        done = send(gateway->fd, at, (size_t)(end - at), flags);
        if (done >= 0) {
            at += done;
#ifdef MSG_DONTWAIT
            flags &= ~MSG_DONTWAIT; /* a message that was begun is completed */
#endif
            continue;
        }
        code = errno;
        if (code == EINTR)
            continue;
        if ((code == EAGAIN || code == EWOULDBLOCK || code == EMSGSIZE || code == ENOBUFS) &&
            at == (const uint8_t *)message)
            return code; /* nothing was sent: the socket stays open */
        aiokq_gateway_close(gateway);
        return code;
    }
    return AIOKQ_GATEWAY_OK;
}

/* Send an encoded message, and wait while the gateway's queue is full.
 *
 * Returns 0 or an errno: EMSGSIZE if a datagram of this socket cannot be as large (raise SO_SNDBUF
 * of gateway->fd), ENOBUFS if the system has no memory for it, EBADF if the socket is closed. After
 * another error the socket is closed, so that the next message of a stream never follows a part of
 * this one: open it again, and send the same message. */
static inline int aiokq_gateway_send(aiokq_gateway *gateway, const void *message, size_t size)
{
    return aiokq_gateway_send_(gateway, message, size, 0);
}

#ifdef MSG_DONTWAIT
/* The same, but return EAGAIN at once if the gateway's queue is full. If a stream has taken a part
 * of the message, the function waits until the stream has taken the rest. */
static inline int aiokq_gateway_try_send(aiokq_gateway *gateway, const void *message, size_t size)
{
    return aiokq_gateway_send_(gateway, message, size, MSG_DONTWAIT);
}
#endif

#ifdef __cplusplus
}
#endif

#endif
