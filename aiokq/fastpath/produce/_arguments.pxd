# The C functions of arguments.py that other files of the unit call.

cdef object as_bytes(object value, object what)
cdef object plain_headers(object headers)
cdef long long checked_timestamp(object timestamp_ms) except? -2
cdef long long checked_partition(object partition) except? -2
cdef object record_parts(object record)
