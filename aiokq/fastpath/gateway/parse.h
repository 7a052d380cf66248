/* Reads one message of the gateway's wire format, with all bounds checked. Needs no Python.
 * Tests: tests/unit/fastpath/test_gateway_pool.py, test_gateway_fuzz.py. */
#ifndef AIOKQ_GATEWAY_PARSE_H
#define AIOKQ_GATEWAY_PARSE_H

#include <stdint.h>

/* The reasons for which the core discards messages: indexes of REASONS in values.py. */
#define AIOKQ_MALFORMED 0
#define AIOKQ_API_KEY 1
#define AIOKQ_API_VERSION 2
#define AIOKQ_UNCLEAN_DISCONNECT 3
#define AIOKQ_NOT_ALLOWED 4
#define AIOKQ_TOO_LONG 5
#define AIOKQ_RATE_LIMIT 6
#define AIOKQ_NO_MEMORY 7
#define AIOKQ_BAD_TOPIC 8
#define AIOKQ_SPOOL_FULL 14
#define AIOKQ_SPOOL_ERROR 15
#define AIOKQ_REASONS 32 /* room for all of them */

typedef struct {
    const unsigned char *topic;
    const unsigned char *key;
    const unsigned char *value;
    int64_t timestamp;
    int32_t topic_size;
    int32_t key_size;
    int32_t value_size;
    uint32_t partition_key;
    int64_t sequence; /* that feed() gave it; -1 if it gave none. Not set by aiokq_parse */
    int keyed;        /* PartitionKey, not AnyPartition */
    int version;
} aiokq_message;

static inline uint32_t aiokq_big_u32(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int32_t aiokq_big_i32(const unsigned char *at) {
    return (int32_t)aiokq_big_u32(at);
}

static inline int aiokq_big_i16(const unsigned char *at) {
    return (int16_t)((uint16_t)at[0] << 8 | at[1]);
}

static inline int64_t aiokq_big_i64(const unsigned char *at) {
    return (int64_t)((uint64_t)aiokq_big_u32(at) << 32 | aiokq_big_u32(at + 4));
}

/* Reads the message that is all of `size` bytes. Returns -1, or the reason to discard it. */
static inline int aiokq_parse(const unsigned char *at, int64_t size, aiokq_message *message) {
    const unsigned char *end = at + size;
    int api_key;
    if (size < 8 || aiokq_big_i32(at) != size)
        return AIOKQ_MALFORMED;
    api_key = aiokq_big_i16(at + 4);
    message->version = aiokq_big_i16(at + 6);
    if (api_key != 256 && api_key != 257)
        return AIOKQ_API_KEY;
    if (message->version != 0)
        return AIOKQ_API_VERSION;
    message->keyed = api_key == 257;
    message->partition_key = 0;
    if (size < (message->keyed ? 16 : 12) || at[8] != 0 || at[9] != 0)
        return AIOKQ_MALFORMED;
    at += 10;
    if (message->keyed) {
        message->partition_key = aiokq_big_u32(at);
        at += 4;
    }
    message->topic_size = aiokq_big_i16(at);
    message->topic = at += 2;
    if (message->topic_size < 1 || end - at < (int64_t)message->topic_size + 12)
        return AIOKQ_MALFORMED;
    at += message->topic_size;
    message->timestamp = aiokq_big_i64(at);
    message->key_size = aiokq_big_i32(at + 8);
    message->key = at += 12;
    if (message->key_size < 0 || end - at < (int64_t)message->key_size + 4)
        return AIOKQ_MALFORMED;
    at += message->key_size;
    message->value_size = aiokq_big_i32(at);
    message->value = at += 4;
    return message->value_size == end - at ? -1 : AIOKQ_MALFORMED;
}

#define AIOKQ_TOPIC_BYTES 249 /* the longest name of a topic that Kafka allows */

/* Returns whether Kafka allows a name of a topic. */
static inline int aiokq_legal_topic(const unsigned char *name, int32_t size) {
    if (size < 1 || size > AIOKQ_TOPIC_BYTES)
        return 0;
    for (int32_t n = 0; n < size; n++) {
        unsigned char c = name[n];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return 0;
    }
    return !(name[0] == '.' && (size == 1 || (size == 2 && name[1] == '.')));
}

#endif
