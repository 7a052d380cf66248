/* The gateway's inputs: a thread that reads a socket into a pool, without Python's lock. Needs Linux
 * (recvmmsg, epoll, eventfd); elsewhere an input does not start.
 * pure_intake.py has the same rules in Python.
 * Tests: tests/unit/fastpath/test_gateway_intake.py, test_gateway_fuzz.py. */
#ifndef AIOKQ_GATEWAY_INTAKE_H
#define AIOKQ_GATEWAY_INTAKE_H

#include "aiokq/fastpath/gateway/pool.h"
#include "aiokq/fastpath/gateway/spool.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#if defined(__linux__)
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#define AIOKQ_DATAGRAMS 0 /* transport */
#define AIOKQ_TCP 2

#define AIOKQ_BURST 64                    /* datagrams of one call, events of one call */
#define AIOKQ_BURST_BYTES (4 * 1024 * 1024) /* memory for the datagrams of one call */
#define AIOKQ_SPARSE 8                    /* after fewer datagrams the thread waits for the socket */
#define AIOKQ_READ_BYTES (256 * 1024)
#define AIOKQ_SMALL_READ (16 * 1024)
#define AIOKQ_LACK_MS 100      /* pause of accepting for a lack of descriptors */
#ifndef AIOKQ_CROWDED_MS       /* a test lowers it */
#define AIOKQ_CROWDED_MS 30000 /* time limit of incomplete messages that others wait for */
#endif
#define AIOKQ_LONGEST_MS 60000 /* longest wait for a connection that may be displaced */
#define AIOKQ_LATE_MS 100 /* if a check of the time limits is later, the thread did not run */
#define AIOKQ_HEAD_BYTES 281 /* most bytes of a message with a valid topic, beside key and value */
#define AIOKQ_RESERVE 64 /* descriptors that connections leave to others; at most an eighth of all */
#define AIOKQ_STACK_BYTES (256 * 1024)
#define AIOKQ_LOCKED_BYTES (64 * 1024) /* bytes that are stored without releasing the mutex */
#define AIOKQ_LAST_ACCEPTS 16 /* bursts of connections that an ending input accepts in a round */
#define AIOKQ_SHAKE_MS 10 /* time for handshakes, where the system does not list them */
#define AIOKQ_SYN_RECEIVED 3 /* the state of a handshake in /proc/net/tcp */
#define AIOKQ_ENDING 2 /* `started` while a call waits for the end of the thread */
#define AIOKQ_PRIORITY (-10)
#define AIOKQ_PRIORITY_WINDOW 10 /* milliseconds between two decisions about the priority */
#define AIOKQ_BUSY 40 /* from so many datagrams in a millisecond on, the priority is not raised */
#define AIOKQ_FIRST_PARTIAL 256
#define AIOKQ_GATHER_RATE 10 /* from so many messages in a millisecond on, reads are delayed */
#define AIOKQ_GATHER_MESSAGES 128      /* messages that a read is to find; the socket holds more */
#define AIOKQ_GATHER_BYTES (16 * 1024) /* bytes that a read is to find */
#define AIOKQ_GATHER_NS (500 * 1000)   /* longest pause before a read */
#define AIOKQ_PIECES 256 /* pieces, each of whole messages, that are appended to a spool together */

typedef struct aiokq_connection {
    struct aiokq_connection *before;
    struct aiokq_connection *after;
    struct aiokq_connection *open_before; /* in `aiokq_open_connections` */
    struct aiokq_connection *open_after;
    unsigned char *partial; /* the beginning of a message; `capacity` bytes are charged */
    int64_t capacity;
    int64_t used;  /* bytes of the message that are there, those in `head` included */
    int64_t size;  /* of the message; known once 4 bytes are there */
    int64_t skip;  /* bytes of a discarded message that are still to come */
    int64_t last;  /* when the last bytes came, monotonic milliseconds */
    int64_t since; /* when the message began; -1 if there is none */
    int64_t denied; /* since when another one is read in place of it; 0 if it is read */
    int fd;
    int begun;     /* whether bytes came */
    int displaced; /* it is read to its end, and then closed for another one */
    int expired;   /* idle, or its message incomplete, for too long: read to its end, then closed */
    uint32_t sender; /* the process that connected, or a number that only the connection has */
    unsigned char head[4];
} aiokq_connection;

typedef struct {
    int64_t received;
    int64_t received_bytes;
    int64_t reasons[AIOKQ_REASONS];
    int64_t connections;
    int64_t accepted;
    int64_t refused;
    int64_t idle_closed;
    int64_t partial_closed;
    int64_t displaced;
    int64_t blocked_ms;
    int running;
    int error;
} aiokq_intake_counts;

typedef struct {
    aiokq_pool *pool;
    aiokq_spool *spool; /* NULL if messages are stored in the pool */
    aiokq_piece pieces[AIOKQ_PIECES]; /* what was read and is not appended to the spool yet */
    int piece_count;
    unsigned char *owned; /* memory of one of the pieces */
    int64_t owned_size;
    int fd;
    int transport;
    int64_t limit;
    int block;
    int checks_users;
    uint32_t *users;
    int64_t user_count;
    int64_t max_connections;
    int64_t idle_ms;
    int64_t partial_ms;
    int64_t idle_when_full_ms;

    pthread_t thread;
    int started; /* 0, 1 or AIOKQ_ENDING, under the mutex of the pool */
    int stopping; /* atomic */
    int keeping; /* the thread ends for a change of the options, and leaves the connections open */
    int64_t drain_ms; /* for how long the thread reads on once it is to stop; 0 if it does not */
    int64_t drain_limit; /* atomic; monotonic milliseconds at which it stops to read in any case */
    int64_t drain_began; /* the thread's own; monotonic milliseconds, 0 before it reads on */
    int control; /* an eventfd that wakes the thread */
    int poller;
    aiokq_connection *first; /* the one of which no bytes came for the longest time */
    aiokq_connection *last;
    unsigned char *buffer;
    size_t buffer_size;
    int crowded; /* a connection was not read, because another one has to be read first */
    int listening;       /* whether connections are accepted */
    int64_t accept_at;   /* monotonic ms before which none is accepted, for a lack of descriptors */
    int64_t displace_at; /* monotonic milliseconds before which no connection is idle for long enough */
    int displacing;      /* a connection that is to be closed for another one is still open */
    uint32_t sender;     /* who sent the message that is being stored */
    int64_t stalled_ms; /* time in which nothing was read, because of the pool or the spool */
    aiokq_intake_counts counts; /* under the mutex of the pool */
} aiokq_intake;

static inline int aiokq_stopping(const aiokq_intake *intake) {
    return __atomic_load_n(&intake->stopping, __ATOMIC_ACQUIRE);
}

/* Notes that the thread, which is to stop, reads on; returns 0 if it does not. */
static inline int aiokq_drain_begin(aiokq_intake *intake) {
    if (intake->drain_ms <= 0)
        return 0;
    intake->drain_began = aiokq_ms(CLOCK_MONOTONIC);
    return 1;
}

/* Monotonic milliseconds until which an input that stops reads. */
static inline int64_t aiokq_drain_end(const aiokq_intake *intake) {
    int64_t end = intake->drain_began + intake->drain_ms;
    int64_t limit = __atomic_load_n(&intake->drain_limit, __ATOMIC_RELAXED);
    return end < limit ? end : limit;
}

/* Monotonic milliseconds until which it reads all that comes and waits for room. The rest of its time
 * is for the last read of each connection. */
static inline int64_t aiokq_drain_middle(const aiokq_intake *intake) {
    return intake->drain_began + (aiokq_drain_end(intake) - intake->drain_began) / 2;
}

static inline int aiokq_allowed(const aiokq_intake *intake, uint32_t user) {
    for (int64_t n = 0; n < intake->user_count; n++)
        if (intake->users[n] == user)
            return 1;
    return 0;
}

/* ---------------------------------------------------------------- forks */

/* The accepted connections of all inputs of the process. A forked child closes its copies of them.
 * Otherwise the programs would not notice the end of this process as long as the child lives.
 *
 * A connection is accepted and closed under the mutex, which a thread that forks holds meanwhile: so
 * the list that the child has is whole, and has all connections. A thread that holds the mutex waits
 * for no other. */
static aiokq_connection *aiokq_open_connections;
static pthread_mutex_t aiokq_open_mutex = PTHREAD_MUTEX_INITIALIZER;

static void aiokq_before_fork(void) {
    pthread_mutex_lock(&aiokq_open_mutex);
}

static void aiokq_after_fork_in_parent(void) {
    pthread_mutex_unlock(&aiokq_open_mutex);
}

static void aiokq_after_fork_in_child(void) {
    for (aiokq_connection *one = aiokq_open_connections; one != NULL; one = one->open_after)
        close(one->fd);
    aiokq_open_connections = NULL; /* a child of the child has other files at these numbers */
    pthread_mutex_unlock(&aiokq_open_mutex);
}

static int aiokq_watch_error;

static void aiokq_watch_once(void) {
    aiokq_watch_error = pthread_atfork(aiokq_before_fork, aiokq_after_fork_in_parent,
                                       aiokq_after_fork_in_child);
}

/* Watches the forks of the process from the first call on; returns 0 or an errno. */
static inline int aiokq_watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, aiokq_watch_once);
    return aiokq_watch_error;
}

/* Closes the descriptor of a connection that was accepted. */
static inline void aiokq_connection_close(aiokq_connection *connection) {
    pthread_mutex_lock(&aiokq_open_mutex);
    if (connection->open_before != NULL)
        connection->open_before->open_after = connection->open_after;
    else
        aiokq_open_connections = connection->open_after;
    if (connection->open_after != NULL)
        connection->open_after->open_before = connection->open_before;
    close(connection->fd);
    pthread_mutex_unlock(&aiokq_open_mutex);
}

/* ---------------------------------------------------------------- blocks of incomplete messages */

/* Large blocks are mapped, so that they grow without a copy, and so that the system gets their memory
 * back: in the heaps of the threads, blocks of all sizes would leave holes. */

static inline void aiokq_block_free(unsigned char *block, int64_t size) {
    if (block != NULL && size >= AIOKQ_MAPPED)
        munmap(block, (size_t)size);
    else
        free(block);
}

/* Returns a block of `size` bytes in place of a smaller one of `old` bytes, or NULL. */
static inline unsigned char *aiokq_block_grow(unsigned char *block, int64_t old, int64_t size) {
    void *made;
    if (size < AIOKQ_MAPPED)
        return (unsigned char *)realloc(block, (size_t)size);
#if defined(__linux__)
    if (old >= AIOKQ_MAPPED) {
        made = mremap(block, (size_t)old, (size_t)size, MREMAP_MAYMOVE);
        return made == MAP_FAILED ? NULL : (unsigned char *)made;
    }
#endif
    made = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    if (old)
        memcpy(made, block, (size_t)old);
    aiokq_block_free(block, old);
    return (unsigned char *)made;
}

/* ---------------------------------------------------------------- messages */

/* Waits until memory is freed; under the mutex. */
static inline void aiokq_wait_for_memory(aiokq_intake *intake) {
    int64_t began = aiokq_ms(CLOCK_MONOTONIC), passed;
    aiokq_write_wake(intake->pool); /* else the loop would not learn of what to take */
    intake->pool->waiting++;
    pthread_cond_wait(&intake->pool->memory, &intake->pool->mutex);
    intake->pool->waiting--;
    passed = aiokq_ms(CLOCK_MONOTONIC) - began;
    intake->counts.blocked_ms += passed;
    intake->stalled_ms += passed;
}

/* Appends pieces to the spool, without the mutex of the pool; returns -1, or the reason why they are
 * not accepted. Waits if the input is to block. `*never` becomes 1 if they are not accepted, and
 * even the empty spool has no room for all of them; else 0. */
static inline int aiokq_spool_pieces(aiokq_intake *intake, int from, int to, int64_t wall,
                                     int *never) {
    int64_t size = 0, began;
    int reason, stops, may;
    for (int n = from; n < to; n++)
        size += intake->pieces[n].size;
    *never = 0;
    for (;;) {
        stops = aiokq_stopping(intake);
        reason = aiokq_spool_append(intake->spool, intake->pieces + from, to - from, wall,
                                    intake->block && stops);
        *never = reason >= 0 && !aiokq_spool_fits(intake->spool, size, to - from);
        if (reason < 0 || !intake->block || stops)
            return reason;
        began = aiokq_ms(CLOCK_MONOTONIC);
        may = aiokq_spool_wait(intake->spool, size, to - from);
        aiokq_pool_lock(intake->pool);
        intake->counts.blocked_ms += aiokq_ms(CLOCK_MONOTONIC) - began;
        aiokq_pool_unlock(intake->pool);
        if (!may)
            return reason;
    }
}

/* Counts pieces, and discards them for `reason` unless it is -1. */
static inline void aiokq_count_pieces(aiokq_intake *intake, int from, int to, int64_t wall,
                                      int reason) {
    aiokq_pool_lock(intake->pool);
    for (int n = from; n < to; n++) {
        const unsigned char *at = intake->pieces[n].at, *end = at + intake->pieces[n].size;
        intake->counts.received += intake->pieces[n].messages;
        intake->counts.received_bytes += intake->pieces[n].size;
        while (reason >= 0 && at < end) {
            int64_t own = aiokq_big_i32(at);
            aiokq_refuse_message(intake->pool, at, own, wall, intake->transport, reason);
            intake->counts.reasons[reason]++;
            at += own;
        }
        if (reason >= 0 && n + 1 < to) { /* so that the loop need not wait for all of them */
            aiokq_pool_unlock(intake->pool);
            aiokq_pool_lock(intake->pool);
        }
    }
    aiokq_pool_unlock(intake->pool);
}

/* Appends a piece to the spool; message by message if even the empty spool has no room for the
 * whole piece. */
static inline void aiokq_flush_piece(aiokq_intake *intake, int n, int64_t wall) {
    aiokq_piece *piece = intake->pieces + n, all = *piece;
    int never, reason = aiokq_spool_pieces(intake, n, n + 1, wall, &never);
    if (!never || all.messages == 1) {
        aiokq_count_pieces(intake, n, n + 1, wall, reason);
        return;
    }
    piece->messages = 1;
    for (int64_t at = 0; at < all.size; at += piece->size) {
        piece->at = all.at + at;
        piece->size = aiokq_big_i32(piece->at);
        reason = aiokq_spool_pieces(intake, n, n + 1, wall, &never);
        aiokq_count_pieces(intake, n, n + 1, wall, reason);
    }
}

/* Appends what was read to the spool; without the mutex of the pool. */
static inline void aiokq_intake_flush(aiokq_intake *intake) {
    int64_t began, mono, wall;
    int count = intake->piece_count, reason, never;
    if (count == 0)
        return;
    began = aiokq_ms(CLOCK_MONOTONIC);
    aiokq_pool_now(intake->pool, &mono, &wall);
    reason = aiokq_spool_pieces(intake, 0, count, wall, &never);
    if (never) {
        for (int n = 0; n < count; n++)
            aiokq_flush_piece(intake, n, wall);
    } else {
        aiokq_count_pieces(intake, 0, count, wall, reason);
    }
    intake->stalled_ms += aiokq_ms(CLOCK_MONOTONIC) - began;
    intake->piece_count = 0;
    aiokq_block_free(intake->owned, intake->owned_size);
    intake->owned = NULL;
}

/* Adds one message to what will be appended to the spool, under the mutex. */
static inline void aiokq_intake_add(aiokq_intake *intake, const unsigned char *data,
                                    int64_t size) {
    aiokq_piece *last;
    if (intake->piece_count) {
        last = intake->pieces + intake->piece_count - 1;
        if (last->at + last->size == data && last->size + size <= AIOKQ_SPOOL_FRAME_BYTES) {
            last->size += size;
            last->messages++;
            return;
        }
    }
    if (intake->piece_count == AIOKQ_PIECES) {
        aiokq_pool_unlock(intake->pool);
        aiokq_intake_flush(intake);
        aiokq_pool_lock(intake->pool);
    }
    last = intake->pieces + intake->piece_count++;
    last->at = data;
    last->size = size;
    last->messages = 1;
}

/* Stores or discards one message, under the mutex; waits for memory if the input is to block. */
static inline void aiokq_intake_accept(aiokq_intake *intake, const unsigned char *data,
                                       int64_t size, int64_t mono, int64_t wall) {
    aiokq_message message;
    if (intake->spool != NULL && aiokq_parse(data, size, &message) < 0) {
        aiokq_intake_add(intake, data, size);
        return;
    }
    for (;;) {
        int when_full = !intake->block           ? AIOKQ_DISCARD
                        : aiokq_stopping(intake) ? AIOKQ_FORCE
                                                 : AIOKQ_WAIT;
        if (aiokq_accept(intake->pool, data, size, mono, wall, intake->transport, intake->sender,
                         when_full))
            break;
        aiokq_wait_for_memory(intake);
    }
    intake->counts.received++;
    intake->counts.received_bytes += size;
    if (intake->pool->outcome >= 0)
        intake->counts.reasons[intake->pool->outcome]++;
}

/* Counts one message that is not stored, under the mutex. */
static inline void aiokq_intake_lost(aiokq_intake *intake, int reason, int64_t size,
                                     const unsigned char *data, int64_t known, int64_t wall) {
    aiokq_lost(intake->pool, reason, size, intake->transport, data, known, wall);
    intake->counts.received++;
    intake->counts.received_bytes += size;
    intake->counts.reasons[reason]++;
}

/* Releases and takes the mutex again if much was stored, so that the loop need not wait. */
static inline void aiokq_breathe(aiokq_intake *intake, int64_t *locked, int64_t size) {
    *locked += size;
    if (*locked > AIOKQ_LOCKED_BYTES) {
        *locked = 0;
        aiokq_pool_unlock(intake->pool);
        aiokq_pool_lock(intake->pool);
    }
}

/* ---------------------------------------------------------------- bytes of a connection */

/* Frees memory, under the mutex, which is released for a large block: the system takes its pages back
 * one by one. */
static inline void aiokq_free_apart(aiokq_pool *pool, unsigned char *block, int64_t size) {
    if (size > AIOKQ_LARGE)
        aiokq_pool_unlock(pool);
    aiokq_block_free(block, size);
    if (size > AIOKQ_LARGE)
        aiokq_pool_lock(pool);
}

/* Gives up the incomplete message of a connection, under the mutex, which may be released. */
static inline void aiokq_partial_end(aiokq_intake *intake, aiokq_connection *connection) {
    if (connection->capacity)
        aiokq_charge_partial(intake->pool, -connection->capacity, AIOKQ_FORCE);
    aiokq_free_apart(intake->pool, connection->partial, connection->capacity);
    connection->partial = NULL;
    connection->capacity = connection->used = 0;
    connection->since = -1;
    if (intake->pool->turn == connection)
        intake->pool->turn = NULL;
}

/* The bytes of an incomplete message that are there. */
static inline const unsigned char *aiokq_partial_data(const aiokq_connection *connection) {
    return connection->partial != NULL ? connection->partial : connection->head;
}

/* Discards the incomplete message of a connection; the rest of the message will be skipped. */
static inline void aiokq_partial_lost(aiokq_intake *intake, aiokq_connection *connection,
                                      int64_t wall) {
    aiokq_intake_lost(intake, AIOKQ_NO_MEMORY, connection->size, aiokq_partial_data(connection),
                      connection->used, wall);
    connection->skip = connection->size - connection->used;
    aiokq_partial_end(intake, connection);
}

/* Programs that send half of a message and wait must not take the memory of the others: if
 * incomplete messages take too much, the oldest ones of this input are discarded. */
static inline void aiokq_partials_limit(aiokq_intake *intake, aiokq_connection *connection,
                                        int64_t size, int64_t wall) {
    while (aiokq_partials_full(intake->pool, connection->capacity, size)) {
        aiokq_connection *oldest = NULL;
        for (aiokq_connection *one = intake->first; one != NULL; one = one->after) {
            if (one != connection && one->capacity &&
                (oldest == NULL || one->since < oldest->since))
                oldest = one;
        }
        if (oldest == NULL)
            return;
        aiokq_partial_lost(intake, oldest, wall);
    }
}

/* Makes room for `used` bytes of an incomplete message; returns 0 if there is none. The mutex is
 * released while a large block is moved: no other thread uses the connection. */
static inline int aiokq_partial_room(aiokq_intake *intake, aiokq_connection *connection,
                                     int64_t used, int64_t wall) {
    int64_t capacity = 2 * connection->capacity;
    unsigned char *moved;
    if (used <= connection->capacity)
        return 1;
    if (connection->size - AIOKQ_HEAD_BYTES + AIOKQ_MESSAGE_OVERHEAD > intake->pool->max_bytes)
        return 0; /* the whole message could not be stored in the empty pool either */
    capacity = capacity > AIOKQ_FIRST_PARTIAL ? capacity : AIOKQ_FIRST_PARTIAL;
    capacity = capacity > used ? capacity : used;
    capacity = capacity < connection->size ? capacity : connection->size;
    if (!intake->block)
        aiokq_partials_limit(intake, connection, capacity - connection->capacity, wall);
    if (!aiokq_charge_partial(intake->pool, capacity - connection->capacity,
                              intake->block ? AIOKQ_FORCE : AIOKQ_DISCARD))
        return 0;
    if (capacity > AIOKQ_COPIED)
        aiokq_pool_unlock(intake->pool);
    moved = aiokq_block_grow(connection->partial, connection->capacity, capacity);
    if (capacity > AIOKQ_COPIED)
        aiokq_pool_lock(intake->pool);
    if (moved == NULL) {
        aiokq_charge_partial(intake->pool, connection->capacity - capacity, AIOKQ_FORCE);
        return 0;
    }
    connection->partial = moved;
    connection->capacity = capacity;
    return 1;
}

/* Stores the messages in the bytes that came; returns 0 after a fault of the framing. */
static inline int aiokq_connection_data(aiokq_intake *intake, aiokq_connection *connection,
                                        const unsigned char *data, int64_t size) {
    aiokq_pool *pool = intake->pool;
    int64_t mono, wall, locked = 0, part;
    intake->sender = connection->sender;
    aiokq_pool_lock(pool);
    aiokq_pool_now(pool, &mono, &wall);
    while (size > 0) {
        if (connection->skip) {
            part = connection->skip < size ? connection->skip : size;
            connection->skip -= part;
            data += part;
            size -= part;
            continue;
        }
        if (connection->used == 0 && size >= 4) {
            int64_t own = aiokq_big_i32(data);
            if (own >= 4 && own - 4 <= intake->limit && own <= size) {
                aiokq_intake_accept(intake, data, own, mono, wall);
                data += own;
                size -= own;
                aiokq_breathe(intake, &locked, own);
                continue;
            }
        }
        if (connection->since < 0)
            connection->since = aiokq_ms(CLOCK_MONOTONIC);
        if (connection->used < 4) {
            part = 4 - connection->used < size ? 4 - connection->used : size;
            memcpy(connection->head + connection->used, data, (size_t)part);
            connection->used += part;
            data += part;
            size -= part;
            if (connection->used < 4)
                break;
            connection->size = aiokq_big_i32(connection->head);
            if (connection->size < 4 || connection->size - 4 > intake->limit) {
                /* The sample is what is there: the size, and what follows it in these bytes. */
                int64_t rest = size < pool->sample_bytes ? size : pool->sample_bytes;
                unsigned char *sample = (unsigned char *)malloc((size_t)(rest + 4));
                if (sample != NULL) {
                    memcpy(sample, connection->head, 4);
                    if (rest)
                        memcpy(sample + 4, data, (size_t)rest);
                }
                aiokq_intake_lost(intake, AIOKQ_MALFORMED, 4,
                                  sample != NULL ? sample : connection->head,
                                  sample != NULL ? rest + 4 : 4, wall);
                free(sample);
                aiokq_partial_end(intake, connection);
                aiokq_pool_unlock(pool);
                aiokq_intake_flush(intake);
                return 0;
            }
        }
        part = connection->size - connection->used < size ? connection->size - connection->used
                                                          : size;
        if (!aiokq_partial_room(intake, connection, connection->used + part, wall)) {
            aiokq_partial_lost(intake, connection, wall);
            continue;
        }
        if (connection->used == 4)
            memcpy(connection->partial, connection->head, 4);
        if (part > AIOKQ_COPIED)
            aiokq_pool_unlock(pool);
        if (part)
            memcpy(connection->partial + connection->used, data, (size_t)part);
        if (part > AIOKQ_COPIED)
            aiokq_pool_lock(pool);
        connection->used += part;
        data += part;
        size -= part;
        if (connection->used == connection->size) {
            unsigned char *whole = connection->partial;
            connection->partial = NULL;
            part = connection->size;
            aiokq_partial_end(intake, connection);
            aiokq_intake_accept(intake, whole, part, mono, wall);
            if (intake->piece_count == 1 && intake->pieces[0].at == whole)
                intake->owned = whole, intake->owned_size = part; /* freed after the flush */
            else
                aiokq_free_apart(pool, whole, part);
            aiokq_breathe(intake, &locked, part);
        }
    }
    if (pool->turn == connection && connection->capacity == 0)
        pool->turn = NULL;
    aiokq_pool_unlock(pool);
    aiokq_intake_flush(intake);
    return 1;
}

/* Adds a connection to the list, as the one of which bytes came last. */
static inline void aiokq_connection_link(aiokq_intake *intake, aiokq_connection *connection) {
    connection->after = NULL;
    connection->before = intake->last;
    if (intake->last != NULL)
        intake->last->after = connection;
    else
        intake->first = connection;
    intake->last = connection;
}

static inline void aiokq_connection_unlink(aiokq_intake *intake, aiokq_connection *connection) {
    if (connection->before != NULL)
        connection->before->after = connection->after;
    else
        intake->first = connection->after;
    if (connection->after != NULL)
        connection->after->before = connection->before;
    else
        intake->last = connection->before;
}

/* Notes that bytes of a connection came. */
static inline void aiokq_connection_used(aiokq_intake *intake, aiokq_connection *connection) {
    connection->last = aiokq_ms(CLOCK_MONOTONIC);
    if (connection->after != NULL) {
        aiokq_connection_unlink(intake, connection);
        aiokq_connection_link(intake, connection);
    }
}

/* Counts the incomplete message of a connection that ends, and frees the connection. */
static inline void aiokq_connection_end(aiokq_intake *intake, aiokq_connection *connection) {
    int64_t mono, wall;
    aiokq_pool_lock(intake->pool);
    aiokq_pool_now(intake->pool, &mono, &wall);
    if (connection->used)
        aiokq_intake_lost(intake, AIOKQ_UNCLEAN_DISCONNECT, connection->used,
                          aiokq_partial_data(connection), connection->used, wall);
    aiokq_partial_end(intake, connection);
    aiokq_connection_unlink(intake, connection);
    intake->counts.connections--;
    aiokq_pool_unlock(intake->pool);
    if (connection->displaced)
        intake->displacing = 0;
    if (connection->fd >= 0) {
        /* A child between vfork() and exec() may hold the connection, too. Then close() alone would
         * not end it, and the poller would report events of the freed connection. */
#if defined(__linux__)
        if (intake->poller >= 0)
            epoll_ctl(intake->poller, EPOLL_CTL_DEL, connection->fd, NULL);
#endif
        shutdown(connection->fd, SHUT_RDWR);
        aiokq_connection_close(connection);
    }
    free(connection);
}

/* Returns a number for the program that has made a connection. */
static inline uint32_t aiokq_sender_of(const aiokq_intake *intake, int fd) {
#if defined(__linux__)
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (intake->transport != AIOKQ_TCP && fd >= 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
        return (uint32_t)peer.pid;
#else
    (void)fd;
#endif
    return (uint32_t)intake->counts.accepted;
}

/* Returns a connection without a descriptor, or NULL. */
static inline aiokq_connection *aiokq_connection_new(void) {
    aiokq_connection *connection = (aiokq_connection *)calloc(1, sizeof *connection);
    if (connection != NULL)
        connection->fd = connection->since = -1;
    return connection;
}

/* Adds a connection to those of the input. */
static inline void aiokq_connection_begin(aiokq_intake *intake, aiokq_connection *connection) {
    connection->sender = aiokq_sender_of(intake, connection->fd);
    connection->last = aiokq_ms(CLOCK_MONOTONIC);
    aiokq_pool_lock(intake->pool);
    aiokq_connection_link(intake, connection);
    intake->counts.connections++;
    intake->counts.accepted++;
    aiokq_pool_unlock(intake->pool);
}

#if defined(__linux__)

static inline void aiokq_pause(void) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
}

/* Returns whether there is no room for further messages. */
static inline int aiokq_full(aiokq_intake *intake) {
    int full;
    if (intake->spool != NULL)
        return aiokq_spool_full(intake->spool);
    aiokq_pool_lock(intake->pool);
    full = intake->pool->used >= intake->pool->max_bytes;
    aiokq_pool_unlock(intake->pool);
    return full;
}

/* Returns whether an input that stops may read more. A blocking input waits for room. */
static inline int aiokq_may_drain(aiokq_intake *intake) {
    while (intake->block && aiokq_full(intake)) {
        if (aiokq_ms(CLOCK_MONOTONIC) >= aiokq_drain_middle(intake))
            return 0;
        aiokq_pause();
    }
    return aiokq_ms(CLOCK_MONOTONIC) < aiokq_drain_end(intake);
}

/* ---------------------------------------------------------------- datagrams */

typedef struct {
    struct mmsghdr messages[AIOKQ_BURST];
    struct iovec blocks[AIOKQ_BURST];
    union {
        char room[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr aligned;
    } control[AIOKQ_BURST];
    int count;
} aiokq_burst;

typedef struct {
    int64_t since;
    int64_t count; /* datagrams since then */
    int base;      /* the priority that the process has */
    int current;
    int fixed;
} aiokq_priority;

/* Notes who sent a datagram; returns whether this user may send. */
static inline int aiokq_burst_sender(aiokq_intake *intake, struct msghdr *header) {
    intake->sender = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part != NULL;
         part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_CREDENTIALS &&
            part->cmsg_len >= CMSG_LEN(sizeof(struct ucred))) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(part), sizeof sender);
            intake->sender = (uint32_t)sender.pid;
            return !intake->checks_users || aiokq_allowed(intake, sender.uid);
        }
    }
    return !intake->checks_users;
}

/* Reads what the socket has, at most one burst; returns the number of datagrams, or -errno. */
static inline int aiokq_burst_read(aiokq_intake *intake, aiokq_burst *burst) {
    aiokq_pool *pool = intake->pool;
    int64_t mono, wall, locked = 0;
    int count;
    for (int n = 0; n < burst->count; n++) {
        burst->messages[n].msg_hdr.msg_control = burst->control[n].room;
        burst->messages[n].msg_hdr.msg_controllen = sizeof burst->control[n].room;
    }
    count = recvmmsg(intake->fd, burst->messages, (unsigned)burst->count, MSG_DONTWAIT, NULL);
    if (count < 0)
        return -errno;
    aiokq_pool_lock(pool);
    aiokq_pool_now(pool, &mono, &wall);
    for (int n = 0; n < count; n++) {
        struct msghdr *header = &burst->messages[n].msg_hdr;
        const unsigned char *data = (const unsigned char *)burst->blocks[n].iov_base;
        int64_t size = burst->messages[n].msg_len;
        if (!aiokq_burst_sender(intake, header))
            aiokq_intake_lost(intake, AIOKQ_NOT_ALLOWED, size, data, size, wall);
        else if (header->msg_flags & MSG_TRUNC)
            aiokq_intake_lost(intake, AIOKQ_MALFORMED, size, data, size, wall);
        else
            aiokq_intake_accept(intake, data, size, mono, wall);
        aiokq_breathe(intake, &locked, size);
    }
    aiokq_pool_unlock(pool);
    aiokq_intake_flush(intake);
    return count;
}

/* Sets the priority of this thread for the rate at which datagrams come. The queue of a socket
 * holds only ten, so the thread should run before others. But then it interrupts a sender after
 * each datagram, which at a high rate costs more CPU than the datagrams themselves. Without the
 * right to raise its priority, the thread keeps the one it has. */
static inline void aiokq_prioritize(aiokq_priority *priority, int count) {
    int64_t now = aiokq_ms(CLOCK_MONOTONIC);
    int wanted;
    priority->count += count;
    if (priority->fixed || now - priority->since < AIOKQ_PRIORITY_WINDOW)
        return;
    wanted = priority->base;
    if (priority->count / (now - priority->since) < AIOKQ_BUSY && wanted > AIOKQ_PRIORITY)
        wanted = AIOKQ_PRIORITY;
    priority->since = now;
    priority->count = 0;
    if (wanted == priority->current)
        return;
    if (setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), wanted) < 0)
        priority->fixed = 1;
    priority->current = wanted;
}

static inline int aiokq_receive_datagrams(aiokq_intake *intake) {
    struct pollfd polled[2] = {{intake->fd, POLLIN, 0}, {intake->control, POLLIN, 0}};
    /* The blocks begin at different places of a page. At equal places, all of them would compete
     * for a few lines of the cache. */
    size_t stride = (((size_t)intake->limit + 63) & ~(size_t)63) + 192;
    int found, room = (int)(AIOKQ_BURST_BYTES / (stride - 192));
    aiokq_priority priority = {0, 0, 0, 0, 0};
    aiokq_burst *burst = (aiokq_burst *)calloc(1, sizeof *burst);
    if (burst == NULL)
        return ENOMEM;
    burst->count = room > AIOKQ_BURST ? AIOKQ_BURST : room < 1 ? 1 : room;
    intake->buffer_size = stride * (size_t)burst->count;
    intake->buffer = (unsigned char *)malloc(intake->buffer_size);
    if (intake->buffer == NULL) {
        free(burst);
        return ENOMEM;
    }
    for (int n = 0; n < burst->count; n++) {
        burst->blocks[n].iov_base = intake->buffer + stride * (size_t)n;
        burst->blocks[n].iov_len = (size_t)intake->limit;
        burst->messages[n].msg_hdr.msg_iov = &burst->blocks[n];
        burst->messages[n].msg_hdr.msg_iovlen = 1;
    }
    priority.base = priority.current =
        getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    found = 0;
    while (!aiokq_stopping(intake)) {
        if (found < AIOKQ_SPARSE && poll(polled, 2, -1) < 0 && errno != EINTR)
            aiokq_pause();
        if (polled[0].revents & POLLNVAL) {
            found = -EBADF;
            break;
        }
        if (aiokq_stopping(intake))
            break;
        found = aiokq_burst_read(intake, burst);
        if (found == -ENOTSOCK || found == -EBADF || found == -EINVAL || found == -ENOTCONN)
            break;
        if (found == -ENOMEM || found == -ENOBUFS)
            aiokq_pause();
        aiokq_prioritize(&priority, found > 0 ? found : 0);
    }
    if (aiokq_stopping(intake)) {
        /* The first burst is read although there is no room: it is small, and if it were not read,
         * no sender would know that it is lost. */
        if (aiokq_drain_begin(intake))
            while (aiokq_burst_read(intake, burst) > 0 && aiokq_may_drain(intake) &&
                   aiokq_ms(CLOCK_MONOTONIC) < aiokq_drain_middle(intake))
                continue;
        found = 0;
    }
    free(burst);
    return found < 0 ? -found : 0;
}

/* ---------------------------------------------------------------- streams */

/* Moves the beginning of a connection's time limits by the `ms` in which it was not read, but not
 * beyond `now`. */
static inline void aiokq_postpone_one(aiokq_connection *connection, int64_t ms, int64_t now) {
    connection->last = connection->last + ms < now ? connection->last + ms : now;
    if (connection->since >= 0)
        connection->since = connection->since + ms < now ? connection->since + ms : now;
}

/* Waits until the pool has room; returns how many bytes of a connection may be read, 0 if another
 * connection has to be read first.
 *
 * The incomplete messages of all inputs together get half of the pool. Beyond this half, only one
 * incomplete message may grow, so that it can be completed. If all could grow, each would wait for
 * memory that the others hold. */
static inline size_t aiokq_wait_for_room(aiokq_intake *intake, aiokq_connection *connection) {
    aiokq_pool *pool = intake->pool;
    size_t most = intake->buffer_size;
    if (!intake->block)
        return most;
    aiokq_pool_lock(pool);
    /* With a spool, complete messages need no memory of the pool. */
    while (intake->spool == NULL && aiokq_crowded(pool) && !aiokq_stopping(intake))
        aiokq_wait_for_memory(intake);
    if (!aiokq_stopping(intake) && pool->turn != connection &&
        (pool->used >= pool->max_bytes || aiokq_partials_full(pool, connection->capacity, 0))) {
        if (connection->capacity == 0 && pool->used < pool->max_bytes &&
            pool->partial < pool->max_bytes / 4 * 3) {
            most = AIOKQ_SMALL_READ; /* all these bytes may belong to an incomplete message */
        } else if (pool->turn == NULL) {
            pool->turn = connection;
        } else {
            pool->crowded_at = aiokq_ms(CLOCK_MONOTONIC);
            intake->crowded = 1;
            most = 0;
        }
    }
    aiokq_pool_unlock(pool);
    if (most == 0 && !connection->denied) {
        connection->denied = aiokq_ms(CLOCK_MONOTONIC);
    } else if (most && connection->denied) { /* this time does not count for its limits */
        int64_t now = aiokq_ms(CLOCK_MONOTONIC), passed = now - connection->denied;
        connection->denied = 0;
        aiokq_postpone_one(connection, passed, now);
    }
    return most;
}

/* If `pool->turn` is a connection without an incomplete message, lets the message of another
 * connection grow. */
static inline void aiokq_end_turn(aiokq_intake *intake, const aiokq_connection *connection) {
    if (!intake->block)
        return;
    aiokq_pool_lock(intake->pool);
    if (intake->pool->turn == connection && connection->capacity == 0)
        intake->pool->turn = NULL;
    aiokq_pool_unlock(intake->pool);
}

/* Reads from a connection once; returns 1 if more may follow, 0 if not, -1 if it was closed. */
static inline int aiokq_connection_read(aiokq_intake *intake, aiokq_connection *connection) {
    size_t most;
    ssize_t size;
    char byte;
    if (connection->expired && recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        /* Does not wait for room, because it frees memory. */
        aiokq_connection_end(intake, connection);
        return -1;
    }
    most = aiokq_wait_for_room(intake, connection);
    if (most == 0)
        return 0;
    size = recv(connection->fd, intake->buffer, most, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ||
                     errno == ENOMEM || errno == ENOBUFS)) {
        aiokq_end_turn(intake, connection);
        return 0;
    }
    if (size > 0) {
        connection->begun = 1;
        aiokq_connection_used(intake, connection);
        if (aiokq_connection_data(intake, connection, intake->buffer, size))
            return 1;
    }
    aiokq_connection_end(intake, connection);
    return -1;
}

/* Accepts a connection; returns 0, or the errno. */
static inline int aiokq_connection_accept(aiokq_intake *intake, aiokq_connection *connection) {
    int error = 0;
    pthread_mutex_lock(&aiokq_open_mutex);
    connection->fd = accept4(intake->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection->fd >= 0) {
        connection->open_after = aiokq_open_connections;
        if (connection->open_after != NULL)
            connection->open_after->open_before = connection;
        aiokq_open_connections = connection;
    } else {
        error = errno;
    }
    pthread_mutex_unlock(&aiokq_open_mutex);
    return error;
}

/* Closes and frees a connection that does not belong to the input yet. */
static inline void aiokq_refuse(aiokq_intake *intake, aiokq_connection *connection) {
    aiokq_pool_lock(intake->pool);
    intake->counts.refused++;
    aiokq_pool_unlock(intake->pool);
    aiokq_connection_close(connection);
    free(connection);
}

/* Returns the idle connection to close for a waiting connection; NULL if there is none. Among the
 * connections without an incomplete or unread message, the result is the one of which no bytes
 * came for the longest time, if that is at least `idle_when_full_ms`. Otherwise `displace_at`
 * becomes the earliest time at which there may be such a connection. */
static inline aiokq_connection *aiokq_displaceable(aiokq_intake *intake) {
    int64_t now = aiokq_ms(CLOCK_MONOTONIC);
    aiokq_connection *one = intake->first, *after;
    int64_t idle = intake->idle_when_full_ms;
    char byte;
    intake->displace_at = now + AIOKQ_LACK_MS;
    for (; one != NULL; one = after) {
        after = one->after;
        if (now - one->last < idle) {
            if (one->last + idle > intake->displace_at)
                intake->displace_at = one->last + idle;
            return NULL;
        }
        if (one->since >= 0 || one->skip || one->denied)
            continue;
        if (recv(one->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) {
            intake->displace_at = 0;
            return one;
        }
        aiokq_connection_used(intake, one); /* it has unread data */
    }
    return NULL;
}

/* Ends an idle connection, because another connection waits for its place or descriptor. From now
 * on, the client's program cannot write to the connection. The input still reads the data that was
 * written before, and then closes the connection. (With TCP, one more write succeeds before the
 * program gets the error.) */
static inline void aiokq_displace(aiokq_intake *intake) {
    aiokq_connection *connection;
    if (intake->idle_when_full_ms == 0 || intake->displacing || intake->drain_began)
        return;
    connection = aiokq_displaceable(intake);
    if (connection == NULL)
        return;
    connection->displaced = intake->displacing = 1;
    aiokq_pool_lock(intake->pool);
    intake->counts.displaced++;
    aiokq_pool_unlock(intake->pool);
    shutdown(connection->fd, SHUT_RD);
}

/* Whether only the reserved descriptors are free, which the spool needs for files, and the Kafka client
 * for connections. The system gives the lowest free descriptor, so its number tells how many are in
 * use. */
static inline int aiokq_lacks_descriptors(const aiokq_intake *intake) {
    struct rlimit limit;
    rlim_t reserve;
    int lowest;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return 0;
    reserve = limit.rlim_cur / 8 < AIOKQ_RESERVE ? limit.rlim_cur / 8 : AIOKQ_RESERVE;
    lowest = fcntl(intake->control, F_DUPFD_CLOEXEC, 0);
    if (lowest < 0)
        return 1;
    close(lowest);
    return (rlim_t)lowest + reserve >= limit.rlim_cur;
}

/* Accepts the connections that wait, at most a burst; returns 0, or an errno that is final.
 *
 * Connections beyond the limit wait in the queue of the kernel, with what they have sent: if they
 * were accepted and closed, messages would be lost that nobody counts. */
static inline int aiokq_accept_connections(aiokq_intake *intake) {
    if (intake->counts.connections >= intake->max_connections)
        aiokq_displace(intake);
    for (int n = 0; n < AIOKQ_BURST && intake->counts.connections < intake->max_connections; n++) {
        struct epoll_event event;
        aiokq_connection *connection;
        /* An ending input without a connection accepts one even if only reserved descriptors are
         * free, so that the waiting connections are read. */
        int last = intake->drain_began && intake->counts.connections == 0;
        int error = !last && aiokq_lacks_descriptors(intake) ? EMFILE : 0;
        connection = aiokq_connection_new();
        if (connection == NULL)
            error = ENOMEM;
        else if (error == 0)
            error = aiokq_connection_accept(intake, connection);
        if (error) {
            free(connection);
            if (error == EBADF || error == EINVAL || error == ENOTSOCK || error == EOPNOTSUPP)
                return error;
            if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
                intake->accept_at = aiokq_ms(CLOCK_MONOTONIC) + AIOKQ_LACK_MS;
                aiokq_displace(intake);
            }
            return 0;
        }
        if (intake->checks_users) {
            struct ucred peer;
            socklen_t size = sizeof peer;
            if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
                !aiokq_allowed(intake, peer.uid)) {
                aiokq_refuse(intake, connection);
                continue;
            }
        }
        aiokq_connection_begin(intake, connection);
        memset(&event, 0, sizeof event);
        event.events = EPOLLIN;
        event.data.ptr = connection;
        if (epoll_ctl(intake->poller, EPOLL_CTL_ADD, connection->fd, &event) < 0) {
            aiokq_pool_lock(intake->pool);
            intake->counts.accepted--;
            intake->counts.refused++;
            aiokq_pool_unlock(intake->pool);
            aiokq_connection_end(intake, connection);
        }
    }
    return 0;
}

/* Adds the time in which nothing was read to the limits of all connections. */
static inline void aiokq_postpone(aiokq_intake *intake, int64_t ms) {
    int64_t now = aiokq_ms(CLOCK_MONOTONIC);
    for (aiokq_connection *one = intake->first; one != NULL; one = one->after)
        aiokq_postpone_one(one, ms, now);
}

/* Ends connections that were idle, or whose message was incomplete, for too long. From now on, their
 * programs cannot write. The input still reads the data that was written before, and then closes the
 * connections, so data that came at the last moment, or while the thread did not run, is not lost.
 * (With TCP, one more write succeeds before the program gets the error.) */
static inline void aiokq_expire(aiokq_intake *intake, int64_t now) {
    aiokq_connection *connection = intake->first;
    int64_t limit = intake->partial_ms;
    if (limit == 0 && intake->block) {
        /* Others, perhaps of another input, wait for the end of incomplete messages, so these have a
         * limit in any case. */
        aiokq_pool_lock(intake->pool);
        if (intake->pool->crowded_at && now - intake->pool->crowded_at < AIOKQ_CROWDED_MS / 2)
            limit = AIOKQ_CROWDED_MS;
        aiokq_pool_unlock(intake->pool);
    }
    for (; connection != NULL; connection = connection->after) {
        int partial = limit > 0 && connection->since >= 0 && now - connection->since >= limit;
        int idle = intake->idle_ms > 0 && now - connection->last >= intake->idle_ms;
        if ((partial || idle) && !connection->denied && !connection->expired) {
            aiokq_pool_lock(intake->pool);
            if (partial)
                intake->counts.partial_closed++;
            else
                intake->counts.idle_closed++;
            aiokq_pool_unlock(intake->pool);
            connection->expired = 1;
            shutdown(connection->fd, SHUT_RD);
        }
    }
}

/* Milliseconds between two checks for connections that are too old; -1 if there are no limits. */
static inline int aiokq_tick(const aiokq_intake *intake) {
    int64_t least = intake->idle_ms;
    if (intake->partial_ms > 0 && (least == 0 || intake->partial_ms < least))
        least = intake->partial_ms;
    if (least == 0)
        return intake->block ? AIOKQ_CROWDED_MS / 4 : -1;
    least /= 4;
    return (int)(least < 5 ? 5 : least > 250 ? 250 : least);
}

typedef struct {
    int64_t since;    /* when the rate was measured, monotonic milliseconds */
    int64_t messages; /* received by the input until then */
    int64_t bytes;
    int64_t read;  /* bytes received by the input until the last read */
    int64_t pause; /* nanoseconds before the next read */
} aiokq_pace;

/* Waits a moment before the next read of a busy input, so that the read finds several messages: to
 * wake up and to read costs ten times as much as a message. The first message after a time without
 * messages is read at once. */
static inline void aiokq_gather(const aiokq_intake *intake, aiokq_pace *pace, int64_t now) {
    const aiokq_intake_counts *counts = &intake->counts;
    int64_t passed = now - pace->since, read = counts->received_bytes - pace->read;
    pace->read = counts->received_bytes;
    if (passed >= 2) {
        int64_t messages = counts->received - pace->messages;
        int64_t bytes = counts->received_bytes - pace->bytes;
        pace->pause = 0;
        if (messages >= AIOKQ_GATHER_RATE * passed) {
            int64_t most = passed * 1000000 * AIOKQ_GATHER_MESSAGES / messages;
            pace->pause = passed * 1000000 * AIOKQ_GATHER_BYTES / bytes;
            pace->pause = most < pace->pause ? most : pace->pause;
            pace->pause = AIOKQ_GATHER_NS < pace->pause ? AIOKQ_GATHER_NS : pace->pause;
        }
        pace->since = now;
        pace->messages = counts->received;
        pace->bytes = counts->received_bytes;
    }
    if (pace->pause && read < AIOKQ_GATHER_BYTES && !aiokq_stopping(intake)) {
        struct timespec pause = {0, (long)pace->pause};
        nanosleep(&pause, NULL);
    }
}

/* Watches the listening socket. While no connection may be accepted, the socket is not watched,
 * because waiting connections would wake the thread all the time. Returns the milliseconds until it
 * is to be watched again, 0 if that is not known, or -errno. */
static inline int aiokq_listen(aiokq_intake *intake) {
    int64_t now = aiokq_ms(CLOCK_MONOTONIC), rest = 0;
    int64_t lack = intake->accept_at ? intake->accept_at - now : 0;
    int wanted = lack <= 0;
    struct epoll_event event;
    if (wanted && intake->counts.connections >= intake->max_connections) {
        if (intake->idle_when_full_ms > 0 && intake->displace_at > now)
            rest = intake->displace_at - now;
        rest = rest < AIOKQ_LONGEST_MS ? rest : AIOKQ_LONGEST_MS;
        wanted = intake->idle_when_full_ms > 0 && !intake->displacing && rest == 0;
    }
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.ptr = intake; /* stands for the listening socket */
    if (lack <= 0)
        intake->accept_at = 0;
    if (wanted != intake->listening) {
        if (epoll_ctl(intake->poller, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, intake->fd, &event) <
            0) {
            if (errno != ENOMEM && errno != ENOSPC)
                return -errno;
            return AIOKQ_LACK_MS;
        }
        intake->listening = wanted;
    }
    return lack > 0 ? (int)lack : (int)rest;
}

/* Milliseconds in which an ending TCP input waits for the first message of a connection. */
static inline int64_t aiokq_fresh_ms(const aiokq_intake *intake) {
    if (intake->transport != AIOKQ_TCP)
        return 0;
    return (aiokq_drain_middle(intake) - intake->drain_began) * 3 / 10;
}

/* Whether a program that has just connected may be about to send its first message. */
static inline int aiokq_is_fresh(const aiokq_intake *intake, const aiokq_connection *connection) {
    return !connection->begun &&
           aiokq_ms(CLOCK_MONOTONIC) - connection->last < aiokq_fresh_ms(intake);
}

/* Accepts the connections that wait if `accepts` is not 0, and reads each connection once. A
 * connection is closed if there is nothing more to read, unless it is fresh. With `last`, it is also
 * closed if there may be more. Returns whether there were any connections. */
static inline int aiokq_drain_round(aiokq_intake *intake, int accepts, int last) {
    aiokq_connection *connection, *after;
    int64_t before = intake->counts.accepted + intake->counts.refused, came, count;
    int calls = 0, found = 0, some = 0;
    while (accepts && calls++ < AIOKQ_LAST_ACCEPTS) {
        aiokq_accept_connections(intake);
        came = intake->counts.accepted + intake->counts.refused;
        if (came == before)
            break;
        before = came;
        some = 1;
    }
    /* A program could still write after the last read of its connection, and its messages would be
     * lost uncounted. After the shutdown, its write fails. */
    if (intake->transport != AIOKQ_TCP)
        for (connection = intake->first; connection != NULL; connection = connection->after)
            shutdown(connection->fd, SHUT_RD);
    /* A connection of which bytes come moves to the end of the list. */
    count = intake->counts.connections;
    some |= count > 0;
    for (connection = intake->first; connection != NULL && count-- > 0; connection = after) {
        /* Looked at before the read: it finds all that came while the connection was fresh. */
        int fresh = aiokq_is_fresh(intake, connection), more;
        after = connection->after;
        more = aiokq_may_drain(intake) ? aiokq_connection_read(intake, connection) : 0;
        found |= more != 0;
        /* TCP accepts data until the connection is closed, so close it right after the last read. */
        if (more == 0 ? !fresh : more > 0 && last)
            aiokq_connection_end(intake, connection);
    }
    if (!found)
        aiokq_pause();
    return some;
}

/* Whether the system has connections to a TCP socket whose handshake has begun and not ended; -1 if
 * it does not say so. If the queue of the socket was full, it drops the last segment of a handshake,
 * with which the program is connected and may write, until the program sends the segment again. */
static inline int aiokq_has_handshakes(int fd) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    unsigned port, given, state;
    char line[512];
    int found = 0;
    FILE *table;
    if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        return -1;
    table = fopen(address.ss_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
    if (table == NULL)
        return -1;
    port = ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
    while (!found && fgets(line, sizeof line, table) != NULL)
        found = sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x", &given, &state) == 2 &&
                given == port && state == AIOKQ_SYN_RECEIVED;
    fclose(table);
    return found;
}

/* Reads what the waiting and the open connections have, in turns: programs that write all the time do
 * not use the time of the others. From `aiokq_drain_middle` on, connections are read once more.
 *
 * The caller lets the system refuse new TCP connections; those that a program has begun to open are
 * waited for. A connection that would be fresh after the middle is not accepted: if systemd owns the
 * socket, the connection waits for the next process. */
static inline void aiokq_drain_connections(aiokq_intake *intake) {
    int64_t now;
    int handshakes = intake->transport == AIOKQ_TCP, accepts, some;
    intake->max_connections = INT64_MAX; /* accept all waiting connections */
    do {
        now = aiokq_ms(CLOCK_MONOTONIC);
        accepts = now < aiokq_drain_middle(intake) - aiokq_fresh_ms(intake);
        some = aiokq_drain_round(intake, accepts, now >= aiokq_drain_middle(intake));
        if (!some && handshakes && accepts) {
            /* A handshake that ends now is a connection that the next round accepts. */
            some = 1;
            handshakes = aiokq_has_handshakes(intake->fd);
            if (handshakes < 0)
                handshakes = now - intake->drain_began < AIOKQ_SHAKE_MS;
        }
    } while (some && now < aiokq_drain_end(intake));
}

static inline int aiokq_serve(aiokq_intake *intake) {
    struct epoll_event events[AIOKQ_BURST], event;
    aiokq_pace pace = {0, 0, 0, 0, 0};
    int64_t now, late, checked = aiokq_ms(CLOCK_MONOTONIC);
    int64_t stalled = intake->stalled_ms, stalled_before = stalled;
    int count, error = 0, tick = aiokq_tick(intake), wait;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.ptr = NULL; /* stands for the control descriptor */
    if (epoll_ctl(intake->poller, EPOLL_CTL_ADD, intake->control, &event) < 0)
        return errno;
    for (aiokq_connection *kept = intake->first; kept != NULL; kept = kept->after) {
        event.data.ptr = kept; /* open since before a change of the options */
        if (epoll_ctl(intake->poller, EPOLL_CTL_ADD, kept->fd, &event) < 0)
            return errno;
    }
    while (!aiokq_stopping(intake) && error == 0) {
        wait = aiokq_listen(intake);
        if (wait < 0)
            return -wait;
        wait = wait == 0 || (tick > 0 && tick < wait) ? tick : wait;
        count = epoll_wait(intake->poller, events, AIOKQ_BURST, wait);
        if (count < 0 && errno != EINTR)
            return errno;
        intake->crowded = 0;
        /* Connections are closed here only for their own event, and by aiokq_expire afterwards, so
         * no event refers to a connection that was freed. */
        for (int n = 0; n < count && !aiokq_stopping(intake); n++) {
            if (events[n].data.ptr == intake)
                error = aiokq_accept_connections(intake);
            else if (events[n].data.ptr != NULL)
                aiokq_connection_read(intake, (aiokq_connection *)events[n].data.ptr);
        }
        if (intake->crowded)
            aiokq_pause();
        if (intake->stalled_ms != stalled) {
            aiokq_postpone(intake, intake->stalled_ms - stalled);
            stalled = intake->stalled_ms;
        }
        now = aiokq_ms(CLOCK_MONOTONIC);
        if (tick > 0 && now - checked >= tick) {
            late = now - checked - tick - AIOKQ_LATE_MS - (stalled - stalled_before);
            if (late > 0) /* such as after SIGSTOP: nothing was read meanwhile */
                aiokq_postpone(intake, late);
            checked = now;
            stalled_before = stalled;
            aiokq_expire(intake, now);
        }
        aiokq_gather(intake, &pace, now);
    }
    if (aiokq_stopping(intake) && aiokq_drain_begin(intake))
        aiokq_drain_connections(intake);
    return error;
}

/* ---------------------------------------------------------------- the thread */

static void *aiokq_intake_run(void *given) {
    aiokq_intake *intake = (aiokq_intake *)given;
    int error = 0;
    prctl(PR_SET_NAME, "aiokq-gateway");
    if (intake->transport == AIOKQ_DATAGRAMS) {
        error = aiokq_receive_datagrams(intake);
    } else {
        intake->buffer_size = AIOKQ_READ_BYTES;
        intake->buffer = (unsigned char *)malloc(intake->buffer_size);
        intake->poller = epoll_create1(EPOLL_CLOEXEC);
        if (intake->buffer == NULL)
            error = ENOMEM;
        else if (intake->poller < 0)
            error = errno;
        else
            error = aiokq_serve(intake);
        while (intake->first != NULL && !(error == 0 && intake->keeping))
            aiokq_connection_end(intake, intake->first);
        if (intake->poller >= 0)
            close(intake->poller);
        intake->poller = -1;
    }
    free(intake->buffer);
    intake->buffer = NULL;
    aiokq_pool_lock(intake->pool);
    intake->counts.running = intake->keeping && error == 0;
    intake->counts.error = error;
    if (!aiokq_stopping(intake))
        aiokq_wake(intake->pool);
    aiokq_pool_unlock(intake->pool);
    return NULL;
}

/* Starts the thread; returns 0 or an errno. If the descriptor is not a socket, no thread is
 * started, the errno is stored in the counts, and the result is 0. */
static inline int aiokq_intake_start(aiokq_intake *intake) {
    pthread_attr_t attributes;
    sigset_t all, before;
    socklen_t size = sizeof(int);
    int error, flags, type;
    if (getsockopt(intake->fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0) {
        aiokq_pool_lock(intake->pool);
        intake->counts.error = errno;
        aiokq_wake(intake->pool);
        aiokq_pool_unlock(intake->pool);
        return 0;
    }
    if (intake->transport == AIOKQ_DATAGRAMS) {
        int on = 1;
        if (setsockopt(intake->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0 &&
            intake->checks_users)
            return errno;
    }
    flags = fcntl(intake->fd, F_GETFL);
    if (flags < 0 || fcntl(intake->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return errno;
    intake->control = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (intake->control < 0)
        return errno;
    intake->poller = -1;
    intake->listening = 0;
    intake->accept_at = intake->displace_at = intake->drain_began = 0;
    intake->counts.running = 1;
    error = pthread_attr_init(&attributes);
    if (error == 0) {
        pthread_attr_setstacksize(&attributes, AIOKQ_STACK_BYTES);
        /* Signals are for Python's threads. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        error = pthread_create(&intake->thread, &attributes, aiokq_intake_run, intake);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (error) {
        intake->counts.running = 0;
        close(intake->control);
        return error;
    }
    intake->started = 1;
    return 0;
}

/* Begins to end the thread, which reads on for `drain_ms`; returns whether it ran. If another call
 * ends it, limits the time of that call to `drain_ms`, and waits. */
static inline int aiokq_intake_ending(aiokq_intake *intake, int64_t drain_ms, int keep) {
    int64_t limit = aiokq_ms(CLOCK_MONOTONIC) + drain_ms;
    int runs;
    aiokq_pool_lock(intake->pool);
    if (intake->started == AIOKQ_ENDING && drain_ms > 0 && limit < intake->drain_limit)
        __atomic_store_n(&intake->drain_limit, limit, __ATOMIC_RELAXED);
    while (intake->started == AIOKQ_ENDING)
        pthread_cond_wait(&intake->pool->memory, &intake->pool->mutex);
    runs = intake->started == 1;
    if (runs) {
        intake->started = AIOKQ_ENDING;
        intake->drain_ms = drain_ms;
        __atomic_store_n(&intake->drain_limit, INT64_MAX, __ATOMIC_RELAXED);
        intake->keeping = keep;
        __atomic_store_n(&intake->stopping, 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&intake->pool->memory);
    }
    aiokq_pool_unlock(intake->pool);
    return runs;
}

/* Waits for the end of the thread. */
static inline void aiokq_intake_join(aiokq_intake *intake) {
    uint64_t one = 1;
    ssize_t written;
    if (intake->spool != NULL)
        aiokq_spool_interrupt(intake->spool);
    written = write(intake->control, &one, sizeof one);
    (void)written;
    pthread_join(intake->thread, NULL);
    close(intake->control);
}

static inline void aiokq_intake_ended(aiokq_intake *intake, int started) {
    aiokq_pool_lock(intake->pool);
    intake->started = started;
    pthread_cond_broadcast(&intake->pool->memory);
    aiokq_pool_unlock(intake->pool);
}

/* Stops the thread and waits for its end; any number of threads may call it at once. */
static inline void aiokq_intake_stop(aiokq_intake *intake, int64_t drain_ms) {
    if (!aiokq_intake_ending(intake, drain_ms, 0))
        return;
    aiokq_intake_join(intake);
    aiokq_intake_ended(intake, 0);
}

/* Goes on with the options of `with`, and with the open connections; returns 0, an errno if there is no
 * thread, descriptor or socket (the input is stopped then), or -1 if the input does not run. */
static inline int aiokq_intake_change(aiokq_intake *intake, const aiokq_intake *with) {
    int error;
    if (!aiokq_intake_ending(intake, 0, 1))
        return -1;
    aiokq_intake_join(intake);
    intake->limit = with->limit;
    intake->block = with->block;
    intake->max_connections = with->max_connections;
    intake->idle_ms = with->idle_ms;
    intake->partial_ms = with->partial_ms;
    intake->idle_when_full_ms = with->idle_when_full_ms;
    intake->keeping = 0;
    __atomic_store_n(&intake->stopping, 0, __ATOMIC_RELEASE);
    error = aiokq_intake_start(intake);
    if (error == 0 && intake->started != 1)
        error = intake->counts.error; /* the descriptor is not that of a socket any more */
    if (error) {
        aiokq_pool_lock(intake->pool);
        intake->counts.running = 0;
        aiokq_pool_unlock(intake->pool);
        while (intake->first != NULL)
            aiokq_connection_end(intake, intake->first);
    }
    aiokq_intake_ended(intake, intake->started == 1);
    return error;
}

#else

static inline int aiokq_intake_start(aiokq_intake *intake) {
    (void)intake;
    return ENOSYS;
}

static inline void aiokq_intake_stop(aiokq_intake *intake, int64_t drain_ms) {
    (void)intake;
    (void)drain_ms;
}

static inline int aiokq_intake_change(aiokq_intake *intake, const aiokq_intake *with) {
    (void)intake;
    (void)with;
    return -1;
}

#endif
#endif
