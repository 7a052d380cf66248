/* C writes to a UNIX datagram socket of the gateway: `send PATH COUNT`.
 *
 *     cc -I$(python3 -c "import aiokq.gateway.client as c; print(c.get_include())") -o send send.c
 */
#include <stdio.h>
#include <stdlib.h>

#include "aiokq_gateway.h"

int main(int argc, char *argv[])
{
    aiokq_gateway gateway = AIOKQ_GATEWAY_CLOSED;
    uint8_t message[256];
    char value[100];
    size_t size;
    int code, n, count = argc == 3 ? atoi(argv[2]) : 0;

    if (argc != 3) {
        fprintf(stderr, "usage: %s PATH COUNT\n", argv[0]);
        return 1;
    }
    code = aiokq_gateway_open_unix_datagram(&gateway, argv[1]);
    for (n = 0; code == AIOKQ_GATEWAY_OK && n < count; n++) {
        int length = snprintf(value, sizeof value, "{\"n\": %d, \"from\": \"C\"}", n);

        code = aiokq_gateway_encode(message, sizeof message, &size, "visits", 6,
                                    aiokq_gateway_now_ms(), "c", 1, value, (size_t)length);
        if (code == AIOKQ_GATEWAY_OK)
            code = aiokq_gateway_send(&gateway, message, size);
    }
    aiokq_gateway_close(&gateway);
    if (code != AIOKQ_GATEWAY_OK) {
        fprintf(stderr, "cannot send: %s\n", code > 0 ? strerror(code) : "wrong message");
        return 1;
    }
    return 0;
}
