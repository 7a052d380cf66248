/* The functions of aiokq_gateway.h as a shared library, for tests that call them by ctypes. */
#include "aiokq_gateway.h"

#ifdef __cplusplus
extern "C" {
#endif

int header_size(size_t *size, size_t topic_size, size_t key_size, size_t value_size, int keyed);
int header_encode(void *buffer, size_t room, size_t *size, int keyed, uint32_t partition_key,
                  const char *topic, size_t topic_size, int64_t timestamp_ms, const void *key,
                  size_t key_size, const void *value, size_t value_size);
int header_open(aiokq_gateway *gateway, const char *kind, const char *path, uint16_t port);
int header_send(aiokq_gateway *gateway, const void *message, size_t size, int wait);
int header_close(aiokq_gateway *gateway);
int64_t header_now_ms(void);

int header_size(size_t *size, size_t topic_size, size_t key_size, size_t value_size, int keyed)
{
    return aiokq_gateway_size(size, topic_size, key_size, value_size, keyed);
}

int header_encode(void *buffer, size_t room, size_t *size, int keyed, uint32_t partition_key,
                  const char *topic, size_t topic_size, int64_t timestamp_ms, const void *key,
                  size_t key_size, const void *value, size_t value_size)
{
    if (keyed)
        return aiokq_gateway_encode_partition_key(buffer, room, size, partition_key, topic,
                                                  topic_size, timestamp_ms, key, key_size, value,
                                                  value_size);
    return aiokq_gateway_encode(buffer, room, size, topic, topic_size, timestamp_ms, key, key_size,
                                value, value_size);
}

int header_open(aiokq_gateway *gateway, const char *kind, const char *path, uint16_t port)
{
    if (strcmp(kind, "tcp") == 0)
        return aiokq_gateway_open_tcp(gateway, port);
    if (strcmp(kind, "unix_stream") == 0)
        return aiokq_gateway_open_unix_stream(gateway, path);
    return aiokq_gateway_open_unix_datagram(gateway, path);
}

int header_send(aiokq_gateway *gateway, const void *message, size_t size, int wait)
{
    return wait ? aiokq_gateway_send(gateway, message, size)
                : aiokq_gateway_try_send(gateway, message, size);
}

int header_close(aiokq_gateway *gateway)
{
    return aiokq_gateway_close(gateway);
}

int64_t header_now_ms(void)
{
    return aiokq_gateway_now_ms();
}

#ifdef __cplusplus
}
#endif
