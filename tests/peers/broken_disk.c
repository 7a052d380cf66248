/* A library for LD_PRELOAD: files below $BROKEN_DISK can be read and not written, with the error
 * whose number is in the file $BROKEN_DISK.errno, as long as that file exists.
 *
 * It stands for a disk that fails while files are open, as a file system does that becomes read-only
 * after an error. A mount that is made read-only leaves open files writable. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int broken(const char *path) {
    const char *below = getenv("BROKEN_DISK");
    char name[512], text[16];
    int fd, size;
    if (below == NULL || strncmp(path, below, strlen(below)) != 0)
        return 0;
    snprintf(name, sizeof name, "%s.errno", below);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size = (int)read(fd, text, sizeof text - 1);
    close(fd);
    text[size < 0 ? 0 : size] = 0;
    errno = atoi(text);
    return errno;
}

static int broken_fd(int fd) {
    char link[64], path[512];
    ssize_t size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return broken(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return broken_fd(fd) ? -1 : REAL(pwrite64)(fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return broken_fd(fd) ? -1 : REAL(pwrite)(fd, data, size, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    return broken_fd(fd) ? -1 : REAL(pwritev64)(fd, parts, count, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return broken_fd(fd) ? -1 : REAL(pwritev)(fd, parts, count, at);
}

int fdatasync(int fd) {
    return broken_fd(fd) ? -1 : REAL(fdatasync)(fd);
}

int ftruncate64(int fd, off64_t size) {
    return broken_fd(fd) ? -1 : REAL(ftruncate64)(fd, size);
}

int ftruncate(int fd, off_t size) {
    return broken_fd(fd) ? -1 : REAL(ftruncate)(fd, size);
}

int unlink(const char *path) {
    return broken(path) ? -1 : REAL(unlink)(path);
}

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, int mode) {
    if (flags & (O_WRONLY | O_RDWR | O_CREAT) && broken(path))
        return -1;
    return real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list more;
    int mode;
    va_start(more, flags);
    mode = va_arg(more, int);
    va_end(more);
    return opened(REAL(open64), path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list more;
    int mode;
    va_start(more, flags);
    mode = va_arg(more, int);
    va_end(more);
    return opened(REAL(open), path, flags, mode);
}
