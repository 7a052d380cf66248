# The C functions of arguments.py that other files of the unit call.

cdef object as_bytes(object value, object what)
cdef object plain_headers(object headers)
cdef long long checked_timestamp(object timestamp_ms) except? -2
cdef long long checked_partition(object partition) except? -2
cdef object record_parts(object record)
cdef Py_ssize_t size_of_headers(object headers) except? -1
cdef object check_records(
    object records, object partition, object route, long long partitions, Py_ssize_t max_record_bytes
)
