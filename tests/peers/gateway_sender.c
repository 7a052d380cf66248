/* Sends messages to a gateway, with the options of Dory's `to_dory`; by aiokq_gateway.h.
 *
 * Exit code 0: everything was sent. 1: a wrong option, or a message could not be sent.
 *
 *   --socket-path PATH | --stream-socket-path PATH | --port PORT     (exactly one)
 *   --topic TOPIC [--partition-key N] [--key KEY] [--value VALUE | --stdin]
 *   [--count N] [--interval MICROSECONDS]
 *   [--seq [--pad N]]     value begins with the message's number, with zeros to N digits
 *   [--bad]               the size field is too small by one
 *   [--print N]           print each N-th number
 *   [--timestamp MS]      not of to_dory: time of the messages
 *   [--encode]            not of to_dory: write the messages to standard output
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "aiokq_gateway.h"

static const struct option OPTIONS[] = {
    {"socket-path", required_argument, NULL, 'u'},
    {"socket_path", required_argument, NULL, 'u'},
    {"stream-socket-path", required_argument, NULL, 's'},
    {"stream_socket_path", required_argument, NULL, 's'},
    {"port", required_argument, NULL, 'p'},
    {"topic", required_argument, NULL, 't'},
    {"partition-key", required_argument, NULL, 'P'},
    {"partition_key", required_argument, NULL, 'P'},
    {"key", required_argument, NULL, 'k'},
    {"value", required_argument, NULL, 'v'},
    {"stdin", no_argument, NULL, 'i'},
    {"count", required_argument, NULL, 'c'},
    {"interval", required_argument, NULL, 'I'},
    {"seq", no_argument, NULL, 'q'},
    {"pad", required_argument, NULL, 'd'},
    {"bad", no_argument, NULL, 'b'},
    {"print", required_argument, NULL, 'n'},
    {"timestamp", required_argument, NULL, 'T'},
    {"encode", no_argument, NULL, 'e'},
    {NULL, 0, NULL, 0},
};

static void fail(const char *what, int code)
{
    if (code > 0)
        fprintf(stderr, "error: %s: %s\n", what, strerror(code));
    else
        fprintf(stderr, "error: %s: code %d\n", what, code);
    exit(EXIT_FAILURE);
}

static void *reserve(void *memory, size_t size)
{
    memory = realloc(memory, size > 0 ? size : 1);
    if (memory == NULL)
        fail("no memory", ENOMEM);
    return memory;
}

static char *read_input(size_t *size)
{
    size_t room = 4096;
    char *data = (char *)reserve(NULL, room);

    *size = 0;
    for (;;) {
        *size += fread(data + *size, 1, room - *size, stdin);
        if (*size < room)
            return data;
        room *= 2;
        data = (char *)reserve(data, room);
    }
}

int main(int argc, char *argv[])
{
    const char *datagram = NULL, *stream = NULL, *topic = NULL, *key = "", *value = "";
    unsigned long port = 0, count = 1, interval = 0, print = 0, n, partition_key = 0;
    int keyed = 0, from_input = 0, valued = 0, seq = 0, pad = 0, bad = 0, encode = 0, timed = 0;
    int option, code;
    long long timestamp = 0;
    size_t rest_size, room = 0, size = 0, value_size;
    char *rest, *body;
    uint8_t *buffer = NULL;
    aiokq_gateway gateway = AIOKQ_GATEWAY_CLOSED;

    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'u': datagram = optarg; break;
        case 's': stream = optarg; break;
        case 'p': port = strtoul(optarg, NULL, 10); break;
        case 't': topic = optarg; break;
        case 'P': partition_key = strtoul(optarg, NULL, 10); keyed = 1; break;
        case 'k': key = optarg; break;
        case 'v': value = optarg; valued = 1; break;
        case 'i': from_input = 1; break;
        case 'c': count = strtoul(optarg, NULL, 10); break;
        case 'I': interval = strtoul(optarg, NULL, 10); break;
        case 'q': seq = 1; break;
        case 'd': pad = atoi(optarg); break;
        case 'b': bad = 1; break;
        case 'n': print = strtoul(optarg, NULL, 10); break;
        case 'T': timestamp = strtoll(optarg, NULL, 10); timed = 1; break;
        case 'e': encode = 1; break;
        default: return EXIT_FAILURE;
        }
    }
    if (topic == NULL || optind < argc || (from_input && valued) || port > 65535 ||
        (datagram != NULL) + (stream != NULL) + (port > 0) + encode != 1) {
        fprintf(stderr, "error: give --topic, exactly one of --socket-path, --stream-socket-path "
                        "and --port, and not both --value and --stdin\n");
        return EXIT_FAILURE;
    }
    if (from_input) {
        rest = read_input(&rest_size);
    } else {
        rest_size = strlen(value);
        rest = (char *)reserve(NULL, rest_size);
        memcpy(rest, value, rest_size);
    }
    body = (char *)reserve(NULL, rest_size + 64 + (pad > 0 ? (size_t)pad : 0));

    code = datagram != NULL  ? aiokq_gateway_open_unix_datagram(&gateway, datagram)
           : stream != NULL  ? aiokq_gateway_open_unix_stream(&gateway, stream)
           : port > 0        ? aiokq_gateway_open_tcp(&gateway, (uint16_t)port)
                             : AIOKQ_GATEWAY_OK;
    if (code != AIOKQ_GATEWAY_OK)
        fail("cannot connect", code);
    for (n = 1; n <= count; n++) {
        value_size = seq ? (size_t)sprintf(body, "%0*lu ", pad > 0 ? pad : 1, n) : 0;
        memcpy(body + value_size, rest, rest_size);
        value_size += rest_size;
        if (!timed)
            timestamp = aiokq_gateway_now_ms();
        for (;;) {
            code = keyed ? aiokq_gateway_encode_partition_key(
                               buffer, room, &size, (uint32_t)partition_key, topic, strlen(topic),
                               timestamp, key, strlen(key), body, value_size)
                         : aiokq_gateway_encode(buffer, room, &size, topic, strlen(topic),
                                                timestamp, key, strlen(key), body, value_size);
            if (code != AIOKQ_GATEWAY_BUFFER_TOO_SMALL)
                break;
            room = size;
            buffer = (uint8_t *)reserve(buffer, room);
        }
        if (code != AIOKQ_GATEWAY_OK)
            fail("cannot encode", code);
        if (bad)
            aiokq_gateway_put_(buffer, size - 1, 4);
        if (encode) {
            if (fwrite(buffer, 1, size, stdout) != size)
                fail("cannot write", errno);
        } else {
            code = aiokq_gateway_send(&gateway, buffer, size);
            if (code != AIOKQ_GATEWAY_OK)
                fail("cannot send", code);
        }
        if (print > 0 && n % print == 0)
            printf("%lu messages written\n", n);
        if (interval > 0 && n < count) {
            struct timespec pause;

            pause.tv_sec = (time_t)(interval / 1000000);
            pause.tv_nsec = (long)(interval % 1000000) * 1000;
            nanosleep(&pause, NULL);
        }
    }
    free(rest);
    free(body);
    free(buffer);
    code = aiokq_gateway_close(&gateway);
    if (code != AIOKQ_GATEWAY_OK)
        fail("cannot close", code);
    return EXIT_SUCCESS;
}
