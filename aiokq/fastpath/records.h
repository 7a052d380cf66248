/* Reading of one record of a v2 batch.
 * Tests: tests/unit/fastpath/test_cursor.py, test_compaction.py. */
#ifndef AIOKQ_RECORDS_H
#define AIOKQ_RECORDS_H

#include "aiokq/fastpath/native.h"

typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    const unsigned char *key;
    int64_t key_size; /* negative: null */
    const unsigned char *value;
    int64_t value_size; /* negative: null */
    const unsigned char *headers;
    int64_t header_count;
    const unsigned char *end; /* start of the next record */
} aiokq_record;

/* Reads the record header at `at`; returns the position after it, or NULL if it is malformed. */
static inline const unsigned char *aiokq_parse_header(const unsigned char *at,
                                                      const unsigned char *end,
                                                      const unsigned char **name,
                                                      int64_t *name_size,
                                                      const unsigned char **value,
                                                      int64_t *value_size) {
    at = aiokq_get_varint(at, end, 32, name_size);
    if (at == NULL || *name_size < 0 || *name_size > end - at)
        return NULL;
    *name = at;
    at = aiokq_get_varint(at + *name_size, end, 32, value_size);
    if (at == NULL || *value_size > end - at)
        return NULL;
    *value = at;
    return *value_size > 0 ? at + *value_size : at;
}

/* Reads one record, except the contents of its headers. Never reads past `end`; returns 0 if the
 * record is malformed, else 1. */
static inline int aiokq_parse_record(const unsigned char *at, const unsigned char *end,
                                     aiokq_record *record) {
    int64_t size;
    at = aiokq_get_varint(at, end, 32, &size);
    if (at == NULL || size < 1 || size > end - at)
        return 0;
    end = at + size;
    record->end = end;
    at = aiokq_get_varint(at + 1, end, 64, &record->timestamp_delta); /* skips the attributes */
    if (at == NULL)
        return 0;
    at = aiokq_get_varint(at, end, 32, &record->offset_delta);
    if (at == NULL)
        return 0;
    at = aiokq_get_varint(at, end, 32, &record->key_size);
    if (at == NULL || record->key_size > end - at)
        return 0;
    record->key = at;
    if (record->key_size > 0)
        at += record->key_size;
    at = aiokq_get_varint(at, end, 32, &record->value_size);
    if (at == NULL || record->value_size > end - at)
        return 0;
    record->value = at;
    if (record->value_size > 0)
        at += record->value_size;
    at = aiokq_get_varint(at, end, 32, &record->header_count);
    if (at == NULL || record->header_count < 0 || record->header_count > (end - at) / 2)
        return 0;
    record->headers = at;
    return record->header_count > 0 || at == end;
}

#endif
