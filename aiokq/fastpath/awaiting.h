/* The two type slots (am_send, tp_iternext) behind `await` and `async for`.
 * Tests: tests/unit/fastpath/test_delivery.py, test_stream.py. */
#ifndef AIOKQ_AWAITING_H
#define AIOKQ_AWAITING_H

#include <Python.h>

/* One step of an awaitable: a new reference to what it yields (*yielded = 1) or returns, or
 * NULL with an exception set. */
typedef PyObject *(*aiokq_step)(PyObject *self, int *yielded);

/* Cython leaves am_send empty, and its tp_iternext raises a new StopIteration for each await.
 * Python 3.11 uses am_send (PyIter_Send). Python 3.12 and later call tp_iternext, so there one
 * StopIteration is reused while it has no other reference. A free-threaded build does not reuse
 * it, because the check of the reference count needs the GIL. */
static PySendResult aiokq_send(aiokq_step step, PyObject *self, PyObject **result) {
    int yielded = 0;
    *result = step(self, &yielded);
    if (*result == NULL)
        return PYGEN_ERROR;
    return yielded ? PYGEN_NEXT : PYGEN_RETURN;
}

static PyObject *aiokq_next(aiokq_step step, PyObject *self) {
    int yielded = 0;
    PyObject *value = step(self, &yielded);
    if (value == NULL || yielded)
        return value;
#if PY_VERSION_HEX >= 0x030c0000 && !defined(Py_GIL_DISABLED)
    {
        static PyObject *shared = NULL;
        PyStopIterationObject *stop = (PyStopIterationObject *)shared;
        if (stop != NULL && Py_REFCNT(shared) == 1 && stop->traceback == NULL &&
            stop->context == NULL && stop->cause == NULL && stop->dict == NULL) {
            Py_XSETREF(stop->value, value);
            PyErr_SetRaisedException(Py_NewRef(shared));
            return NULL;
        }
        {
            PyObject *fresh = PyObject_CallNoArgs(PyExc_StopIteration);
            if (fresh == NULL) {
                Py_DECREF(value);
                return NULL;
            }
            Py_XSETREF(((PyStopIterationObject *)fresh)->value, value);
            Py_XSETREF(shared, Py_NewRef(fresh));
            PyErr_SetRaisedException(fresh);
            return NULL;
        }
    }
#else
    {
        /* Not PyErr_SetObject(StopIteration, value): it would unpack a tuple. */
        PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
        Py_DECREF(value);
        if (stop != NULL) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DECREF(stop);
        }
        return NULL;
    }
#endif
}

/* Defines aiokq_patch_NAME, which sets both slots of a type to C functions that call `step`. */
#define AIOKQ_AWAITABLE(NAME)                                                                   \
    static aiokq_step aiokq_step_##NAME;                                                        \
    static PySendResult aiokq_send_##NAME(PyObject *self, PyObject *Py_UNUSED(value),           \
                                          PyObject **result) {                                  \
        return aiokq_send(aiokq_step_##NAME, self, result);                                     \
    }                                                                                           \
    static PyObject *aiokq_next_##NAME(PyObject *self) {                                        \
        return aiokq_next(aiokq_step_##NAME, self);                                             \
    }                                                                                           \
    static void aiokq_patch_##NAME(PyObject *type, aiokq_step step) {                           \
        PyTypeObject *patched = (PyTypeObject *)type;                                           \
        aiokq_step_##NAME = step;                                                               \
        patched->tp_iternext = aiokq_next_##NAME;                                               \
        if (patched->tp_as_async != NULL)                                                       \
            patched->tp_as_async->am_send = aiokq_send_##NAME;                                  \
        PyType_Modified(patched);                                                               \
    }

#endif
