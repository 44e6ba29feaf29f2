/* As much of MPI as hetrain_mpi.c uses, among threads of one process, so that ThreadSanitizer sees all of it. A thread that opens a transport
   says which process it is with fake_become; handles know theirs. Up to 4,096 bytes travel eagerly, more are copied when received, and whatever
   can take time takes a random number of tests. For one source file. */
#ifndef FAKE_MPI_H
#define FAKE_MPI_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_PROCESSES 4
enum { MPI_SUCCESS = 0, MPI_ERR_TRUNCATE = 15, MPI_ERR_IN_STATUS = 17 };
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
enum { MPI_ANY_SOURCE = -1, MPI_ANY_TAG = -1, MPI_UNDEFINED = -32766, MPI_TAG_UB = 1, MPI_BYTE = 1, MPI_INT = 2, MPI_MIN = 3, MPI_ERRORS_RETURN = 4 };
#define MPI_MAX_ERROR_STRING 64

typedef struct fake_comm { int context, process; } fake_comm;
typedef struct fake_message {
    struct fake_message *next;
    int context, from, to, tag, size;
    unsigned char *copy;              /* eager */
    const unsigned char *data;
    struct fake_request *sender;      /* to be completed */
} fake_message;
typedef struct fake_request {
    int done, tests, context, process, source, tag, size, error, is_receive;
    unsigned char *to;
    fake_message *message;            /* being received */
    int from, count;                  /* of what was received */
} fake_request;
typedef fake_comm *MPI_Comm;
typedef fake_request *MPI_Request;
typedef fake_message *MPI_Message;
typedef struct MPI_Status { int MPI_SOURCE, MPI_TAG, MPI_ERROR, count; } MPI_Status;
#define MPI_COMM_NULL NULL
#define MPI_REQUEST_NULL NULL
#define MPI_STATUS_IGNORE NULL
#define MPI_STATUSES_IGNORE NULL

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t fake_change = PTHREAD_COND_INITIALIZER;
static fake_message *fake_first, *fake_last;
static fake_comm fake_world[FAKE_PROCESSES];
static int fake_size = 1, fake_dups[FAKE_PROCESSES];
static uint32_t fake_random_state = 1;
static long fake_live; /* messages and requests */
static __thread int fake_process;
#define MPI_COMM_WORLD (&fake_world[fake_process])

static void fake_become(int process)
{
    fake_process = process;
    fake_world[process].process = process;
}

static int fake_random(int below)
{
    fake_random_state = fake_random_state * 1664525u + 1013904223u;
    return (int)(fake_random_state >> 8) % below;
}

/* ---- setting up: one process's main thread, or all of them together ---- */

static int MPI_Initialized(int *flag) { *flag = 1; return MPI_SUCCESS; }
static int MPI_Finalized(int *flag) { *flag = 0; return MPI_SUCCESS; }
static int MPI_Init_thread(int *argc, char ***argv, int needed, int *provided) { (void)argc, (void)argv; *provided = needed; return MPI_SUCCESS; }
static int MPI_Query_thread(int *provided) { *provided = MPI_THREAD_SERIALIZED; return MPI_SUCCESS; }
static int MPI_Finalize(void) { return MPI_SUCCESS; }
static int MPI_Comm_size(MPI_Comm comm, int *size) { (void)comm; *size = fake_size; return MPI_SUCCESS; }
static int MPI_Comm_rank(MPI_Comm comm, int *rank) { *rank = comm->process; return MPI_SUCCESS; }
static int MPI_Comm_set_errhandler(MPI_Comm comm, int handler) { (void)comm, (void)handler; return MPI_SUCCESS; }
static int MPI_Error_string(int code, char *text, int *length)
{
    *length = snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
    return MPI_SUCCESS;
}
static int MPI_Get_count(const MPI_Status *status, int type, int *count) { (void)type; *count = status->count; return MPI_SUCCESS; }

static int MPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *flag)
{
    static int limit = 0x7FFFFFFF;
    int *at = &limit;
    (void)comm, (void)key;
    memcpy(value, &at, sizeof at);
    *flag = 1;
    return MPI_SUCCESS;
}

static int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *to)
{
    *to = (MPI_Comm)malloc(sizeof **to);
    (*to)->context = ++fake_dups[comm->process]; /* all processes duplicate in the same order */
    (*to)->process = comm->process;
    return MPI_SUCCESS;
}

static int MPI_Comm_free(MPI_Comm *comm)
{
    free(*comm);
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

static int MPI_Allreduce(const int *from, int *to, int count, int type, int operation, MPI_Comm comm)
{
    static int arrived, value[2], generation;
    int mine;
    (void)count, (void)type, (void)operation, (void)comm;
    pthread_mutex_lock(&fake_lock);
    mine = generation;
    if (arrived == 0 || *from < value[mine & 1]) value[mine & 1] = *from;
    if (++arrived == fake_size) {
        arrived = 0;
        generation++;
        pthread_cond_broadcast(&fake_change);
    }
    while (generation == mine) pthread_cond_wait(&fake_change, &fake_lock);
    *to = value[mine & 1];
    pthread_mutex_unlock(&fake_lock);
    return MPI_SUCCESS;
}

/* ---- messages ---- */

static fake_request *fake_new_request(MPI_Comm comm, int is_receive)
{
    fake_request *r = (fake_request *)calloc(1, sizeof *r);
    r->context = comm->context;
    r->process = comm->process;
    r->is_receive = is_receive;
    r->tests = fake_random(4);
    fake_live++;
    return r;
}

static int fake_send(const void *data, int size, int to, int tag, MPI_Comm comm, MPI_Request *request, int synchronous)
{
    fake_message *m = (fake_message *)calloc(1, sizeof *m);
    fake_request *r;
    pthread_mutex_lock(&fake_lock);
    r = fake_new_request(comm, 0);
    fake_live++;
    m->context = comm->context;
    m->from = comm->process;
    m->to = to;
    m->tag = tag;
    m->size = size;
    m->data = (const unsigned char *)data;
    if (size <= 4096) {
        m->copy = (unsigned char *)malloc((size_t)size + 1);
        if (size > 0) memcpy(m->copy, data, (size_t)size);
        m->data = m->copy;
    }
    if (synchronous || size > 4096) m->sender = r;
    else r->done = 1;
    if (fake_last != NULL) fake_last->next = m;
    else fake_first = m;
    fake_last = m;
    pthread_mutex_unlock(&fake_lock);
    *request = r;
    return MPI_SUCCESS;
}

static int MPI_Isend(const void *data, int size, int type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    (void)type;
    return fake_send(data, size, to, tag, comm, request, 0);
}

static int MPI_Issend(const void *data, int size, int type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    (void)type;
    return fake_send(data, size, to, tag, comm, request, 1);
}

/* Takes the first message that fits out of the list. Call with the lock held. */
static fake_message *fake_match(int context, int to, int from, int tag)
{
    fake_message *m, *before = NULL;
    for (m = fake_first; m != NULL; before = m, m = m->next)
        if (m->context == context && m->to == to && (from == MPI_ANY_SOURCE || m->from == from) && (tag == MPI_ANY_TAG || m->tag == tag)) {
            if (before != NULL) before->next = m->next;
            else fake_first = m->next;
            if (fake_last == m) fake_last = before;
            return m;
        }
    return NULL;
}

static int MPI_Irecv(void *to, int size, int type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    fake_request *r;
    (void)type;
    pthread_mutex_lock(&fake_lock);
    r = fake_new_request(comm, 1);
    r->to = (unsigned char *)to;
    r->size = size;
    r->source = from;
    r->tag = tag;
    pthread_mutex_unlock(&fake_lock);
    *request = r;
    return MPI_SUCCESS;
}

static int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status)
{
    pthread_mutex_lock(&fake_lock);
    *message = fake_random(3) == 0 ? NULL : fake_match(comm->context, comm->process, from, tag);
    *flag = *message != NULL;
    if (*flag) {
        status->MPI_SOURCE = (*message)->from;
        status->MPI_TAG = (*message)->tag;
        status->count = (*message)->size;
    }
    pthread_mutex_unlock(&fake_lock);
    return MPI_SUCCESS;
}

static int MPI_Imrecv(void *to, int size, int type, MPI_Message *message, MPI_Request *request)
{
    fake_comm comm;
    (void)type;
    pthread_mutex_lock(&fake_lock);
    comm.context = (*message)->context;
    comm.process = (*message)->to;
    *request = fake_new_request(&comm, 1);
    (*request)->to = (unsigned char *)to;
    (*request)->size = size;
    (*request)->message = *message;
    *message = NULL;
    pthread_mutex_unlock(&fake_lock);
    return MPI_SUCCESS;
}

/* Call with the lock held. */
static int fake_complete(fake_request *r, MPI_Status *status)
{
    fake_message *m;
    if (r->is_receive && !r->done) {
        if (r->message == NULL) r->message = fake_match(r->context, r->process, r->source, r->tag);
        m = r->message;
        if (m == NULL || r->tests-- > 0) return 0;
        r->count = m->size < r->size ? m->size : r->size;
        r->error = m->size > r->size ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
        if (r->count > 0) memcpy(r->to, m->data, (size_t)r->count);
        r->from = m->from;
        r->tag = m->tag;
        if (m->sender != NULL) m->sender->done = 1;
        free(m->copy);
        free(m);
        fake_live--;
        r->done = 1;
    }
    if (!r->done) return 0;
    if (status != NULL) {
        status->MPI_SOURCE = r->from;
        status->MPI_TAG = r->tag;
        status->MPI_ERROR = r->error;
        status->count = r->count;
    }
    free(r);
    fake_live--;
    return 1;
}

static int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    pthread_mutex_lock(&fake_lock);
    *flag = fake_complete(*request, status);
    if (*flag) *request = NULL;
    pthread_mutex_unlock(&fake_lock);
    return MPI_SUCCESS;
}

static int MPI_Testsome(int count, MPI_Request *request, int *finished, int *index, MPI_Status *status)
{
    int i, any = 0, errors = 0;
    *finished = 0;
    pthread_mutex_lock(&fake_lock);
    for (i = 0; i < count; i++) {
        MPI_Status one;
        if (request[i] == NULL) continue;
        any = 1;
        if (!fake_complete(request[i], &one)) continue;
        errors += one.MPI_ERROR != MPI_SUCCESS;
        request[i] = NULL;
        if (status != NULL) status[*finished] = one;
        index[(*finished)++] = i;
    }
    pthread_mutex_unlock(&fake_lock);
    if (!any) *finished = MPI_UNDEFINED;
    return errors > 0 ? MPI_ERR_IN_STATUS : MPI_SUCCESS;
}

static int MPI_Cancel(MPI_Request *request)
{
    pthread_mutex_lock(&fake_lock);
    if ((*request)->message == NULL) (*request)->done = 1;
    pthread_mutex_unlock(&fake_lock);
    return MPI_SUCCESS;
}

static int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    int done = 0;
    while (!done) MPI_Test(request, &done, status);
    return MPI_SUCCESS;
}

#endif
