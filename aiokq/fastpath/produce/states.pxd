# The constants of the produce unit in C; states.py has the same ones and documents them.

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
