# The C function with which outgoing.py calls a coroutine.

cdef extern from *:
    """
    /* The first step of a coroutine: a new reference to what it yields (*yielded = 1) or returns, or
     * NULL with an exception set. No StopIteration is made for the return value. */
    static inline PyObject *aiokq_first_step(PyObject *coroutine, int *yielded) {
        PyObject *value = NULL;
        *yielded = PyIter_Send(coroutine, Py_None, &value) == PYGEN_NEXT;
        return value;
    }
    """
    object aiokq_first_step(object coroutine, int *yielded)
