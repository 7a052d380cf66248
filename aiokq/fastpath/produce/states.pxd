# Owns the numbers that the produce unit is compiled with; states.py has the same, and says what
# they mean.

cdef enum:
    OPEN
    SEALED
    DELIVERED
    FAILED
    MOVED

cdef enum:
    WAIT_NEW
    WAIT_SUSPENDED
    WAIT_WOKEN
    WAIT_CANCELLED
    WAIT_LEFT
    WAIT_CALLBACK

cdef enum:
    MIN_CHUNK = 1024
    RECORD_OVERHEAD = 36
    NUMBERS = 20
