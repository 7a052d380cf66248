/* Programs that benchmarks/micro/gateway.py compares the gateway's inputs with.
 *
 *     gateway send datagram|stream|writes PATH COUNT HEX    sends a message, blocking; a stream in
 *                                                           writes of 64 KiB, or of one message
 *     gateway read datagram|stream|writes PATH COUNT        a bare loop of recvmmsg or recv: what it
 *                                                           reads is thrown away; prints nanoseconds
 *                                                           of CPU */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BURST 64
#define LARGEST 65536
#define CHUNK (256 * 1024)

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void send_all(int fd, long count, const char *hex, int together) {
    size_t size = strlen(hex) / 2, copies = together ? 65536 / size + 1 : 1;
    unsigned char *data = malloc(size * copies);
    for (size_t n = 0; n < size; n++) {
        unsigned byte;
        sscanf(hex + 2 * n, "%2x", &byte);
        data[n] = (unsigned char)byte;
    }
    for (size_t n = 1; n < copies; n++)
        memcpy(data + n * size, data, size);
    while (count > 0) {
        size_t some = (size_t)count < copies ? (size_t)count : copies;
        for (size_t at = 0; at < some * size;) {
            ssize_t sent = send(fd, data + at, some * size - at, 0);
            if (sent < 0)
                fail("send");
            at += (size_t)sent;
        }
        count -= (long)some;
    }
}

static void read_datagrams(int fd, long count) {
    static struct mmsghdr messages[BURST];
    static struct iovec blocks[BURST];
    for (int n = 0; n < BURST; n++) {
        blocks[n].iov_base = malloc(LARGEST);
        blocks[n].iov_len = LARGEST;
        messages[n].msg_hdr.msg_iov = blocks + n;
        messages[n].msg_hdr.msg_iovlen = 1;
    }
    while (count > 0) {
        int found = recvmmsg(fd, messages, BURST, MSG_WAITFORONE, NULL);
        if (found < 0)
            fail("recvmmsg");
        count -= found;
    }
}

static void read_stream(int fd) {
    char *room = malloc(CHUNK);
    int client = accept(fd, NULL, NULL);
    while (recv(client, room, CHUNK, 0) > 0)
        continue;
}

int main(int count, char **given) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int stream = count > 3 && strcmp(given[2], "datagram") != 0, fd;
    if (count < 5)
        return 2;
    strncpy(address.sun_path, given[3], sizeof address.sun_path - 1);
    fd = socket(AF_UNIX, stream ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (strcmp(given[1], "send") == 0) {
        if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
            fail("connect");
        send_all(fd, atol(given[4]), given[5], strcmp(given[2], "stream") == 0);
    } else {
        struct timespec used;
        if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || (stream && listen(fd, 1) < 0))
            fail("bind");
        puts("ready");
        fflush(stdout);
        if (stream)
            read_stream(fd);
        else
            read_datagrams(fd, atol(given[4]));
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        printf("%lld\n", (long long)used.tv_sec * 1000000000 + used.tv_nsec);
    }
    return 0;
}
