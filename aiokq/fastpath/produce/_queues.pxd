# The C types of queues.py.


cdef class QueuedBatch:
    cdef readonly object queue
    cdef readonly object batch
    cdef readonly double deadline
    cdef public bint sealed
    cdef public bint sealing
    cdef public Py_ssize_t size
    cdef public int codec
    cdef public object stamp
    cdef public int attempts
    cdef public bint in_flight
    cdef public int node_id
    cdef public bint uncertain
    cdef public bint torn
    cdef public bint expired
    cdef public bint done
    cdef public object error


cdef class SendWindow:
    cdef readonly object batches
    cdef readonly Py_ssize_t in_flight
    cdef Py_ssize_t _cursor
    cdef bint _draining


cdef class SendQueue:
    cdef readonly object topic
    cdef readonly int partition
    cdef public object slot
    cdef public int leader
    cdef public int leader_epoch
    cdef public double retry_at
    cdef public object blocked_by
    cdef public double scheduled_at
    cdef readonly object sequences
    cdef readonly object _gate
    cdef readonly object _owner
    cdef readonly object _senders
    cdef readonly object _outcomes
    cdef readonly object _limits
    cdef readonly object _backoff
    cdef readonly SendWindow _window
    cdef readonly bint _single
    cdef double _linger
    cdef double _delivery_timeout
