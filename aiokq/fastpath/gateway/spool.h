/* The writer of the gateway's spool: threads of inputs append messages to segments, which are files.
 * Needs no Python. pure_spool.py has the same rules in Python, and describes the format.
 * Tests: tests/unit/fastpath/test_gateway_spool.py. */
#ifndef AIOKQ_GATEWAY_SPOOL_H
#define AIOKQ_GATEWAY_SPOOL_H

#include "aiokq/fastpath/gateway/clock.h"
#include "aiokq/fastpath/gateway/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define AIOKQ_SPOOL_HEADER 32
#define AIOKQ_SPOOL_FRAME 32   /* bytes of a frame before its messages */
#define AIOKQ_SPOOL_CHECKED 12 /* where the part of a frame begins that its CRC covers */
#define AIOKQ_SPOOL_VERSION 1
#define AIOKQ_SPOOL_FRAME_BYTES (64 * 1024)
#define AIOKQ_SPOOL_VECTORS 512 /* of one call; Linux has 1024 */
#define AIOKQ_SPOOL_RETRY_MS 50
#define AIOKQ_SPOOL_LONGEST_RETRY_MS 2000

#define AIOKQ_SYNC_NEVER 0
#define AIOKQ_SYNC_INTERVAL 1
#define AIOKQ_SYNC_EACH 2

typedef uint32_t (*aiokq_checksum)(uint32_t crc, const unsigned char *at, size_t size);

/* Whole messages, one after the other. */
typedef struct {
    const unsigned char *at;
    int64_t size;
    int64_t messages;
} aiokq_piece;

typedef struct {
    int64_t base;
    int64_t end;
    int64_t sequence;
} aiokq_sealed;

typedef struct {
    pthread_mutex_t writing; /* held over writes, and while `fd`, `heads` and `vectors` are used */
    pthread_mutex_t mutex;   /* guards the other fields, and is never held over a write */
    pthread_cond_t changed;
    aiokq_checksum checksum;
    char *directory;
    int64_t max_bytes;
    int64_t segment_bytes;
    int sync; /* when data is written to the disk */
    int wake_fd;
    int woken;
    int closed;

    int fd; /* of the current segment; -1 if there is none */
    int64_t base;
    int64_t end;
    int64_t sequence;
    int64_t stored;
    aiokq_sealed *sealed;
    int sealed_count;
    int sealed_room;
    int *unsynced; /* descriptors of finished segments */
    int unsynced_count;
    int unsynced_room;
    int dirty;
    int named; /* a file was created since the directory was synced */

    int failure; /* the reason for which the last append failed; -1 if it did not */
    int error;
    int sync_error;
    int64_t pause;
    int64_t retry_at; /* monotonic milliseconds */
    int64_t appended;
    int64_t appended_bytes;
    int64_t failures;

    unsigned char *heads; /* memory for an append */
    struct iovec *vectors;
    int room;
} aiokq_spool;

static inline void aiokq_spool_lock(aiokq_spool *spool) {
    pthread_mutex_lock(&spool->mutex);
}

static inline void aiokq_spool_unlock(aiokq_spool *spool) {
    pthread_mutex_unlock(&spool->mutex);
}

static inline void aiokq_put_u32(unsigned char *at, uint32_t value) {
    for (int n = 0; n < 4; n++)
        at[n] = (unsigned char)(value >> (24 - 8 * n));
}

static inline void aiokq_put_i64(unsigned char *at, int64_t value) {
    for (int n = 0; n < 8; n++)
        at[n] = (unsigned char)((uint64_t)value >> (56 - 8 * n));
}

/* Makes room for one more element; returns 0 if there is no memory. */
static inline int aiokq_spool_grow(void **array, int *room, int count, size_t size) {
    void *moved;
    int wanted = *room ? 2 * *room : 16;
    if (count < *room)
        return 1;
    moved = realloc(*array, (size_t)wanted * size);
    if (moved == NULL)
        return 0;
    *array = moved;
    *room = wanted;
    return 1;
}

static inline int aiokq_spool_make(aiokq_spool *spool, const char *directory,
                                   aiokq_checksum checksum) {
    pthread_condattr_t attributes;
    memset(spool, 0, sizeof *spool);
    spool->directory = strdup(directory);
    if (spool->directory == NULL)
        return 0;
    spool->checksum = checksum;
    spool->fd = spool->wake_fd = -1;
    spool->base = -1;
    spool->failure = -1;
    pthread_mutex_init(&spool->writing, NULL);
    pthread_mutex_init(&spool->mutex, NULL);
    pthread_condattr_init(&attributes);
#if defined(__linux__)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&spool->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return 1;
}

static inline void aiokq_spool_close(aiokq_spool *spool) {
    pthread_mutex_lock(&spool->mutex);
    spool->closed = 1;
    pthread_cond_broadcast(&spool->changed);
    pthread_mutex_unlock(&spool->mutex);
    pthread_mutex_lock(&spool->writing);
    pthread_mutex_lock(&spool->mutex);
    if (spool->fd >= 0)
        close(spool->fd);
    spool->fd = -1;
    for (int n = 0; n < spool->unsynced_count; n++)
        close(spool->unsynced[n]);
    spool->unsynced_count = 0;
    pthread_mutex_unlock(&spool->mutex);
    pthread_mutex_unlock(&spool->writing);
}

static inline void aiokq_spool_free(aiokq_spool *spool) {
    aiokq_spool_close(spool);
    pthread_cond_destroy(&spool->changed);
    pthread_mutex_destroy(&spool->mutex);
    pthread_mutex_destroy(&spool->writing);
    free(spool->directory);
    free(spool->sealed);
    free(spool->unsynced);
    free(spool->heads);
    free(spool->vectors);
}

/* ---------------------------------------------------------------- segments, under `writing` */

static inline int aiokq_spool_sync_fd(int fd) {
#if defined(__APPLE__)
    return fsync(fd);
#else
    return fdatasync(fd);
#endif
}

static inline int aiokq_spool_sync_directory(const aiokq_spool *spool) {
    int fd = open(spool->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
    if (fd < 0)
        return errno;
    if (fsync(fd) < 0)
        error = errno;
    close(fd);
    return error;
}

/* Finishes the current segment; the next append begins another one. The caller has called
 * aiokq_spool_room(). Under the mutex. */
static inline void aiokq_spool_seal(aiokq_spool *spool) {
    if (spool->fd < 0)
        return;
    if (spool->end > AIOKQ_SPOOL_HEADER) {
        aiokq_sealed *sealed = &spool->sealed[spool->sealed_count++];
        sealed->base = spool->base;
        sealed->end = spool->end;
        sealed->sequence = spool->sequence;
    } else {
        spool->stored -= AIOKQ_SPOOL_HEADER;
    }
    if (spool->sync == AIOKQ_SYNC_INTERVAL)
        spool->unsynced[spool->unsynced_count++] = spool->fd;
    else
        close(spool->fd);
    spool->fd = -1;
    spool->base = -1;
    spool->end = 0;
}

/* Makes room in the lists for two segments that are finished. Under the mutex. */
static inline int aiokq_spool_room(aiokq_spool *spool) {
    return aiokq_spool_grow((void **)&spool->sealed, &spool->sealed_room, spool->sealed_count + 1,
                            sizeof *spool->sealed) &&
           aiokq_spool_grow((void **)&spool->unsynced, &spool->unsynced_room,
                            spool->unsynced_count + 1, sizeof *spool->unsynced);
}

/* Begins a segment; the old one is finished only when the new one exists. Returns an errno. */
static inline int aiokq_spool_begin(aiokq_spool *spool) {
    unsigned char header[AIOKQ_SPOOL_HEADER];
    char path[PATH_MAX];
    ssize_t written;
    int fd, error = 0;
    int size = snprintf(path, sizeof path, "%s/%020lld.spool", spool->directory,
                        (long long)spool->sequence);
    if (size < 0 || (size_t)size >= sizeof path)
        return ENAMETOOLONG;
    /* A file of this name has no messages that were accepted. */
    fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    memcpy(header, "AIOKQSPL\0\1\0\0", 12);
    aiokq_put_i64(header + 16, spool->sequence);
    aiokq_put_i64(header + 24, aiokq_ms(CLOCK_REALTIME));
    aiokq_put_u32(header + 12, spool->checksum(0, header + 16, 16));
    written = pwrite(fd, header, sizeof header, 0);
    if (written != (ssize_t)sizeof header)
        error = written < 0 ? errno : ENOSPC;
    else if (spool->sync == AIOKQ_SYNC_EACH)
        error = aiokq_spool_sync_directory(spool);
    if (error) {
        close(fd);
        unlink(path);
        return error;
    }
    pthread_mutex_lock(&spool->mutex);
    aiokq_spool_seal(spool);
    spool->fd = fd;
    spool->base = spool->sequence;
    spool->end = AIOKQ_SPOOL_HEADER;
    spool->stored += AIOKQ_SPOOL_HEADER;
    spool->named = 1;
    pthread_mutex_unlock(&spool->mutex);
    return 0;
}

/* Writes vectors at the end, all or none; returns an errno. */
static inline int aiokq_spool_write(aiokq_spool *spool, struct iovec *vectors, int count,
                                    int64_t size) {
    int64_t written = 0;
    int error = 0, synced = 0;
    while (written < size) {
        ssize_t one = pwritev(spool->fd, vectors,
                              count < AIOKQ_SPOOL_VECTORS ? count : AIOKQ_SPOOL_VECTORS,
                              (off_t)(spool->end + written));
        if (one < 0 && errno == EINTR)
            continue;
        if (one <= 0) {
            error = one < 0 ? errno : ENOSPC;
            break;
        }
        written += one;
        /* A short write means a nearly full disk; the next call returns the error. */
        while (count > 0 && (size_t)one >= vectors->iov_len) {
            one -= (ssize_t)vectors->iov_len;
            vectors++;
            count--;
        }
        if (one > 0) {
            vectors->iov_base = (char *)vectors->iov_base + one;
            vectors->iov_len -= (size_t)one;
        }
    }
    if (error == 0 && spool->sync == AIOKQ_SYNC_EACH && aiokq_spool_sync_fd(spool->fd) < 0) {
        error = errno;
        synced = 1;
    }
    if (error == 0)
        return 0;
    if (ftruncate(spool->fd, (off_t)spool->end) < 0)
        synced = 1;
    if (synced) {
        /* After a failed fsync the system may take the pages for written, so this file gets no
         * further messages; what is after its end is not read. */
        pthread_mutex_lock(&spool->mutex);
        spool->failures++;
        aiokq_spool_seal(spool);
        pthread_mutex_unlock(&spool->mutex);
    }
    return error;
}

/* Arranges pieces as frames; returns the number of vectors, 0 if there is no memory. */
static inline int aiokq_spool_arrange(aiokq_spool *spool, const aiokq_piece *pieces, int count,
                                      int64_t arrival, int64_t *size, int64_t *messages) {
    int vectors = 0, frames = 0, from = 0;
    if (count > spool->room) {
        unsigned char *heads = (unsigned char *)realloc(spool->heads,
                                                        (size_t)count * AIOKQ_SPOOL_FRAME);
        struct iovec *moved;
        if (heads == NULL)
            return 0;
        spool->heads = heads;
        moved = (struct iovec *)realloc(spool->vectors, 2 * (size_t)count * sizeof *moved);
        if (moved == NULL)
            return 0;
        spool->vectors = moved;
        spool->room = count;
    }
    *size = *messages = 0;
    while (from < count) {
        unsigned char *head = spool->heads + (size_t)frames++ * AIOKQ_SPOOL_FRAME;
        int64_t own = 0, held = 0;
        uint32_t crc;
        int to = from;
        while (to < count &&
               (to == from || own + pieces[to].size <= AIOKQ_SPOOL_FRAME_BYTES)) {
            own += pieces[to].size;
            held += pieces[to].messages;
            to++;
        }
        memcpy(head, "aKqF", 4);
        aiokq_put_u32(head + 4, (uint32_t)own);
        aiokq_put_u32(head + 12, (uint32_t)held);
        aiokq_put_i64(head + 16, spool->sequence + *messages);
        aiokq_put_i64(head + 24, arrival);
        crc = spool->checksum(0, head + AIOKQ_SPOOL_CHECKED,
                              AIOKQ_SPOOL_FRAME - AIOKQ_SPOOL_CHECKED);
        spool->vectors[vectors].iov_base = head;
        spool->vectors[vectors++].iov_len = AIOKQ_SPOOL_FRAME;
        for (; from < to; from++) {
            crc = spool->checksum(crc, pieces[from].at, (size_t)pieces[from].size);
            spool->vectors[vectors].iov_base = (void *)(uintptr_t)pieces[from].at;
            spool->vectors[vectors++].iov_len = (size_t)pieces[from].size;
        }
        aiokq_put_u32(head + 8, crc);
        *size += AIOKQ_SPOOL_FRAME + own;
        *messages += held;
    }
    return vectors;
}

/* ---------------------------------------------------------------- for inputs */

/* Notes that an append failed; returns the reason. Under the mutex. */
static inline int aiokq_spool_failed(aiokq_spool *spool, int error) {
    spool->error = error;
    spool->failure = error == ENOSPC || error == EDQUOT ? AIOKQ_SPOOL_FULL : AIOKQ_SPOOL_ERROR;
    spool->pause = spool->pause ? 2 * spool->pause : AIOKQ_SPOOL_RETRY_MS;
    if (spool->pause > AIOKQ_SPOOL_LONGEST_RETRY_MS)
        spool->pause = AIOKQ_SPOOL_LONGEST_RETRY_MS;
    spool->retry_at = aiokq_ms(CLOCK_MONOTONIC) + spool->pause;
    return spool->failure;
}

/* Appends pieces, under `writing`; returns 0, an errno, or a negative reason for lack of room. */
static inline int aiokq_spool_put(aiokq_spool *spool, const aiokq_piece *pieces, int count,
                                  int64_t arrival, int force, int64_t *size, int64_t *messages) {
    int error, fits, roll;
    int vectors = aiokq_spool_arrange(spool, pieces, count, arrival, size, messages);
    pthread_mutex_lock(&spool->mutex);
    roll = spool->fd < 0 ||
           (spool->end + *size > spool->segment_bytes && spool->end > AIOKQ_SPOOL_HEADER);
    fits = force || spool->stored + *size + (roll ? AIOKQ_SPOOL_HEADER : 0) <= spool->max_bytes;
    error = vectors == 0 || !aiokq_spool_room(spool) ? ENOMEM : 0;
    /* Only a finished segment can be deleted. To avoid many small segments, a segment that is less
     * than half full is finished only if the messages would not fit even after all other segments
     * are deleted. */
    if (error == 0 && !fits && spool->end > AIOKQ_SPOOL_HEADER &&
        (2 * spool->end >= spool->segment_bytes ||
         spool->end + *size + AIOKQ_SPOOL_HEADER > spool->max_bytes))
        aiokq_spool_seal(spool);
    pthread_mutex_unlock(&spool->mutex);
    if (error)
        return error;
    if (!fits)
        return -AIOKQ_SPOOL_FULL;
    error = roll ? aiokq_spool_begin(spool) : 0;
    return error ? error : aiokq_spool_write(spool, spool->vectors, vectors, *size);
}

/* Appends pieces; returns -1 when they are accepted, or the reason why they are not. */
static inline int aiokq_spool_append(aiokq_spool *spool, const aiokq_piece *pieces, int count,
                                     int64_t arrival, int force) {
    int64_t size = 0, messages = 0;
    int error, reason = -1, wakes = 0;
    pthread_mutex_lock(&spool->writing);
    pthread_mutex_lock(&spool->mutex);
    if (spool->closed)
        reason = AIOKQ_SPOOL_ERROR;
    else if (spool->failure >= 0 && aiokq_ms(CLOCK_MONOTONIC) < spool->retry_at)
        reason = spool->failure;
    pthread_mutex_unlock(&spool->mutex);
    if (reason >= 0 || count == 0) {
        pthread_mutex_unlock(&spool->writing);
        return reason;
    }
    error = aiokq_spool_put(spool, pieces, count, arrival, force, &size, &messages);
    pthread_mutex_lock(&spool->mutex);
    if (error < 0) {
        reason = -error;
        wakes = spool->sealed_count > 0 && !spool->woken && spool->wake_fd >= 0;
        spool->woken |= wakes;
    } else if (error) {
        reason = aiokq_spool_failed(spool, error);
    } else {
        spool->failure = -1;
        spool->error = 0;
        spool->pause = 0;
        spool->end += size;
        spool->stored += size;
        spool->sequence += messages;
        spool->appended += messages;
        for (int n = 0; n < count; n++)
            spool->appended_bytes += pieces[n].size;
        spool->dirty = 1;
        wakes = !spool->woken && spool->wake_fd >= 0;
        spool->woken = 1;
    }
    pthread_mutex_unlock(&spool->mutex);
    pthread_mutex_unlock(&spool->writing);
    if (wakes) {
        uint64_t one = 1;
        ssize_t written = write(spool->wake_fd, &one, sizeof one);
        (void)written;
    }
    return reason;
}

/* Returns whether messages of `size` bytes in so many frames fit into the spool when it is empty. */
static inline int aiokq_spool_fits(const aiokq_spool *spool, int64_t size, int64_t frames) {
    return size + (frames + 1) * AIOKQ_SPOOL_FRAME + AIOKQ_SPOOL_HEADER <= spool->max_bytes;
}

/* Waits a limited time until an append may succeed; returns 0 if it never can, or if the spool is
 * closed. */
static inline int aiokq_spool_wait(aiokq_spool *spool, int64_t size, int64_t frames) {
    struct timespec until;
    int64_t pause = AIOKQ_SPOOL_RETRY_MS;
    pthread_mutex_lock(&spool->mutex);
    if (!aiokq_spool_fits(spool, size, frames) || spool->closed) {
        pthread_mutex_unlock(&spool->mutex);
        return 0;
    }
    if (spool->failure >= 0)
        pause = spool->retry_at - aiokq_ms(CLOCK_MONOTONIC);
    if (pause < 1)
        pause = 1;
#if defined(__linux__)
    clock_gettime(CLOCK_MONOTONIC, &until);
#else
    clock_gettime(CLOCK_REALTIME, &until);
#endif
    until.tv_sec += pause / 1000;
    until.tv_nsec += pause % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&spool->changed, &spool->mutex, &until);
    pthread_mutex_unlock(&spool->mutex);
    return 1;
}

/* Returns whether the segments are as large as they may be. */
static inline int aiokq_spool_full(aiokq_spool *spool) {
    int full;
    pthread_mutex_lock(&spool->mutex);
    full = spool->stored >= spool->max_bytes;
    pthread_mutex_unlock(&spool->mutex);
    return full;
}

static inline void aiokq_spool_interrupt(aiokq_spool *spool) {
    pthread_mutex_lock(&spool->mutex);
    pthread_cond_broadcast(&spool->changed);
    pthread_mutex_unlock(&spool->mutex);
}

/* ---------------------------------------------------------------- for the event loop */

static inline void aiokq_spool_freed(aiokq_spool *spool, int64_t size) {
    pthread_mutex_lock(&spool->mutex);
    spool->stored -= size;
    pthread_cond_broadcast(&spool->changed);
    pthread_mutex_unlock(&spool->mutex);
}

/* Copies the list of finished segments to memory that the caller frees, and empties it; NULL if
 * there is no memory. `progress` gets base, end and sequence. */
static inline aiokq_sealed *aiokq_spool_progress(aiokq_spool *spool, int *count,
                                                 aiokq_sealed *progress) {
    aiokq_sealed *copied;
    pthread_mutex_lock(&spool->mutex);
    copied = (aiokq_sealed *)malloc((size_t)spool->sealed_count * sizeof *copied + 1);
    if (copied != NULL) {
        if (spool->sealed_count)
            memcpy(copied, spool->sealed, (size_t)spool->sealed_count * sizeof *copied);
        *count = spool->sealed_count;
        spool->sealed_count = 0;
        spool->woken = 0;
        progress->base = spool->base;
        progress->end = spool->end;
        progress->sequence = spool->sequence;
    }
    pthread_mutex_unlock(&spool->mutex);
    return copied;
}

/* Writes to the disk what was appended; returns 0 or an errno. */
static inline int aiokq_spool_flush(aiokq_spool *spool) {
    int *fds, count, last = -1, named, error = 0;
    int64_t base;
    pthread_mutex_lock(&spool->mutex); /* `fd` is closed only under the mutex */
    if (!spool->dirty && spool->unsynced_count == 0) {
        pthread_mutex_unlock(&spool->mutex);
        return 0;
    }
    if (spool->dirty && spool->fd >= 0) {
        last = fcntl(spool->fd, F_DUPFD_CLOEXEC, 3);
        if (last < 0) {
            error = errno;
            spool->sync_error = error;
            spool->failures++;
            pthread_mutex_unlock(&spool->mutex);
            return error;
        }
    }
    /* A copy: an append that is under way relies on the room in the list. */
    count = spool->unsynced_count;
    fds = (int *)malloc((size_t)count * sizeof *fds + 1);
    if (fds == NULL) {
        spool->sync_error = ENOMEM;
        spool->failures++;
        pthread_mutex_unlock(&spool->mutex);
        if (last >= 0)
            close(last);
        return ENOMEM;
    }
    if (count)
        memcpy(fds, spool->unsynced, (size_t)count * sizeof *fds);
    spool->unsynced_count = 0;
    base = spool->base;
    named = spool->named;
    spool->dirty = spool->named = 0;
    pthread_mutex_unlock(&spool->mutex);
    for (int n = 0; n < count; n++) {
        if (aiokq_spool_sync_fd(fds[n]) < 0)
            error = errno;
        close(fds[n]);
    }
    free(fds);
    if (last >= 0) {
        if (aiokq_spool_sync_fd(last) < 0)
            error = errno;
        close(last);
    }
    if (named) {
        int failed = aiokq_spool_sync_directory(spool);
        error = failed ? failed : error;
    }
    if (error)
        pthread_mutex_lock(&spool->writing);
    pthread_mutex_lock(&spool->mutex);
    spool->sync_error = error;
    if (error) {
        /* The system may take the pages for written. Later messages go to another file. */
        spool->failures++;
        spool->dirty = 1;
        spool->named |= named;
        if (spool->base == base && aiokq_spool_room(spool))
            aiokq_spool_seal(spool);
    }
    pthread_mutex_unlock(&spool->mutex);
    if (error)
        pthread_mutex_unlock(&spool->writing);
    return error;
}

/* ---------------------------------------------------------------- reading */

/* The size of the sound frame at `at`, its head included; 0 if there is none. */
static inline int64_t aiokq_spool_frame(const unsigned char *at, int64_t size,
                                        aiokq_checksum checksum) {
    int64_t own;
    if (size < AIOKQ_SPOOL_FRAME || memcmp(at, "aKqF", 4) != 0)
        return 0;
    own = AIOKQ_SPOOL_FRAME + (int64_t)aiokq_big_u32(at + 4);
    if (own > size || checksum(0, at + AIOKQ_SPOOL_CHECKED, (size_t)(own - AIOKQ_SPOOL_CHECKED)) !=
                          aiokq_big_u32(at + 8))
        return 0;
    return own;
}

/* Sets bits of a map; returns how many of them were not set, or -1 if one is outside. */
static inline int64_t aiokq_spool_mark(unsigned char *done, int64_t size, int64_t base,
                                       const int64_t *sequences, int64_t count) {
    int64_t fresh = 0;
    for (int64_t n = 0; n < count; n++) {
        int64_t index = sequences[n] - base;
        unsigned char bit = (unsigned char)(1 << (index & 7));
        if (index < 0 || index >> 3 >= size)
            return -1;
        fresh += (done[index >> 3] & bit) == 0;
        done[index >> 3] |= bit;
    }
    return fresh;
}

#endif
