/* Many small sends in one call, for srtm/gateway/sender.py (which has the contract).
 *
 * With io_uring they are one system call: the readers that they wake run when it has ended, not
 * after each send in place of the gateway. Where the kernel gives no ring, they are sent one by one.
 * Everything runs under the GIL, so one ring serves the process. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef IORING_SETUP_SUBMIT_ALL
#define IORING_SETUP_SUBMIT_ALL (1U << 7)
#endif

/* Sends of one system call. Nobody else gets this core meanwhile, at some 4 us each. */
#define ENTRIES 128
#define FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)

struct job {
    const char *bytes;
    Py_ssize_t size;
    Py_ssize_t sent; /* or -errno */
    Py_ssize_t index;
    int fd;
};

static struct {
    int fd, used;
    unsigned mask, done_mask;
    unsigned *tail, *done_head, *done_tail;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *done;
} ring = {.fd = -1};

static void send_each(struct job *job, struct job *end)
{
    for (; job < end; job++) {
        job->sent = send(job->fd, job->bytes, job->size, FLAGS);
        if (job->sent < 0)
            job->sent = -errno;
    }
}

static unsigned reap(struct job *jobs)
{
    unsigned head = *ring.done_head, tail = __atomic_load_n(ring.done_tail, __ATOMIC_ACQUIRE);
    unsigned count = tail - head;
    for (; head != tail; head++) {
        struct io_uring_cqe *done = &ring.done[head & ring.done_mask];
        jobs[done->user_data].sent = done->res;
    }
    __atomic_store_n(ring.done_head, head, __ATOMIC_RELEASE);
    return count;
}

/* At most ENTRIES of them. A send that may not wait is done when it has been submitted. */
static void send_together(struct job *jobs, unsigned count)
{
    unsigned first = *ring.tail, left = count, undone = count;
    for (unsigned i = 0; i < count; i++) {
        struct io_uring_sqe *entry = &ring.entries[(first + i) & ring.mask];
        memset(entry, 0, sizeof *entry);
        entry->opcode = IORING_OP_SEND;
        entry->fd = jobs[i].fd;
        entry->addr = (uintptr_t)jobs[i].bytes;
        entry->len = jobs[i].size;
        entry->msg_flags = FLAGS;
        entry->user_data = i;
    }
    __atomic_store_n(ring.tail, first + count, __ATOMIC_RELEASE);
    while (undone) {
        long taken = syscall(__NR_io_uring_enter, ring.fd, left, undone, IORING_ENTER_GETEVENTS,
                             NULL, 0);
        if (taken >= 0) {
            left -= taken;
        } else if (errno != EINTR && left) { /* no memory for more: take the rest back */
            __atomic_store_n(ring.tail, first + count - left, __ATOMIC_RELEASE);
            send_each(jobs + count - left, jobs + count);
            undone -= left;
            left = 0;
        }
        undone -= reap(jobs);
    }
}

static PyObject *send_all(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    if (given != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1]) ||
        PyList_GET_SIZE(args[0]) != PyList_GET_SIZE(args[1])) {
        PyErr_SetString(PyExc_TypeError, "send_all takes two lists of one length: fds and bytes");
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(args[0]);
    struct job *jobs = PyMem_New(struct job, count ? count : 1);
    PyObject *shorts = jobs ? PyList_New(0) : PyErr_NoMemory();
    if (shorts == NULL)
        goto end;
    struct job *job = jobs;
    for (Py_ssize_t i = 0; i < count; i++) {
        job->index = i;
        job->fd = PyLong_AsLong(PyList_GET_ITEM(args[0], i));
        if ((job->fd == -1 && PyErr_Occurred()) ||
            PyBytes_AsStringAndSize(PyList_GET_ITEM(args[1], i), (char **)&job->bytes,
                                    &job->size) < 0) {
            Py_CLEAR(shorts);
            goto end;
        }
        job += job->size > 0; /* an empty one goes nowhere */
    }
    count = job - jobs;
    if (!ring.used || count < 2)
        send_each(jobs, jobs + count);
    else
        for (Py_ssize_t at = 0; at < count; at += ENTRIES)
            send_together(jobs + at, count - at < ENTRIES ? count - at : ENTRIES);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (jobs[i].sent == jobs[i].size)
            continue;
        PyObject *entry = Py_BuildValue("(nn)", jobs[i].index, jobs[i].sent);
        if (entry == NULL || PyList_Append(shorts, entry) < 0) {
            Py_XDECREF(entry);
            Py_CLEAR(shorts);
            break;
        }
        Py_DECREF(entry);
    }
end:
    PyMem_Free(jobs);
    return shorts;
}

static PyObject *use_ring(PyObject *self, PyObject *wanted)
{
    ring.used = 0;
    if (!PyObject_IsTrue(wanted))
        Py_RETURN_FALSE;
    if (ring.fd >= 0) {
        ring.used = 1;
        Py_RETURN_TRUE;
    }
    /* The flag is of Linux 5.18; before 5.12 a send could wait in the ring all the same. */
    struct io_uring_params at = {.flags = IORING_SETUP_SUBMIT_ALL};
    int fd = syscall(__NR_io_uring_setup, ENTRIES, &at);
    if (fd < 0)
        Py_RETURN_FALSE; /* an older kernel, or one that is told to give none */
    size_t size = at.sq_off.array + at.sq_entries * sizeof(unsigned);
    size_t done_size = at.cq_off.cqes + at.cq_entries * sizeof(struct io_uring_cqe);
    size = size > done_size ? size : done_size; /* one mapping has both since 5.4 */
    int access = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_POPULATE;
    char *both = mmap(NULL, size, access, how, fd, IORING_OFF_SQ_RING);
    void *entries = mmap(NULL, at.sq_entries * sizeof(struct io_uring_sqe), access, how, fd,
                         IORING_OFF_SQES);
    if (both == MAP_FAILED || entries == MAP_FAILED) {
        close(fd); /* what was mapped stays until the process ends: there is no second try */
        Py_RETURN_FALSE;
    }
    ring.mask = *(unsigned *)(both + at.sq_off.ring_mask);
    ring.tail = (unsigned *)(both + at.sq_off.tail);
    ring.done_mask = *(unsigned *)(both + at.cq_off.ring_mask);
    ring.done_head = (unsigned *)(both + at.cq_off.head);
    ring.done_tail = (unsigned *)(both + at.cq_off.tail);
    ring.done = (struct io_uring_cqe *)(both + at.cq_off.cqes);
    ring.entries = entries;
    for (unsigned i = 0; i < at.sq_entries; i++) /* entries are used in their order */
        ((unsigned *)(both + at.sq_off.array))[i] = i;
    ring.fd = fd;
    ring.used = 1;
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"send_all", (PyCFunction)(void (*)(void))send_all, METH_FASTCALL, "See srtm.gateway.sender."},
    {"use_ring", use_ring, METH_O, "Send by io_uring, or not; returns what is done."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sender", NULL, -1, methods};

PyMODINIT_FUNC PyInit__sender(void)
{
    return PyModule_Create(&module);
}
