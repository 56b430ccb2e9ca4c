/* capture.c - stream capture: an operation submitted to a capturing stream becomes a node of a graph.
 *
 * A stream's tail holds the predecessors of its next node. An event recorded in a capturing stream keeps a copy of the
 * tail, and a stream that waits for the event joins the capture. A call that is forbidden during a capture ends it with
 * CUDA_ERROR_STREAM_CAPTURE_INVALIDATED. The modes of the capture and of the calling thread decide which captures it
 * ends.
 */
#include <stdlib.h>

#include "model.h"

static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static struct capture *captures[64]; /* the active ones */
static uint64_t capture_ids;

void sim_nodes_set(struct nodes *to, struct CUgraphNode_st *const *v, size_t n)
{
    struct CUgraphNode_st **copy = malloc((n + 1) * sizeof *copy);
    if (n) memcpy(copy, v, n * sizeof *copy);
    free(to->v);
    to->v = copy;
    to->n = n;
}

/* Adds a node unless the list has it. */
void sim_nodes_add(struct nodes *to, struct CUgraphNode_st *node)
{
    for (size_t i = 0; i < to->n; i++)
        if (to->v[i] == node) return;
    to->v = realloc(to->v, (to->n + 1) * sizeof *to->v);
    to->v[to->n++] = node;
}

static void unref(struct capture *capture)
{
    if (capture && --capture->refs == 0) {
        if (!capture->foreign_graph && capture->graph) sim_graph_free(capture->graph);
        free(capture);
    }
}

void sim_stream_leave_capture(struct CUstream_st *stream)
{
    unref(stream->capture);
    stream->capture = NULL;
    sim_nodes_set(&stream->tail, NULL, 0);
}

void sim_event_leave_capture(CUevent event)
{
    unref(event->capture);
    event->capture = NULL;
    sim_nodes_set(&event->nodes, NULL, 0);
}

/* Needs the lock. Invalidates the captures that an unsafe call of this thread ends. */
CUresult sim_unsafe(void)
{
    bool hurt = false;
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    for (size_t i = 0; i < sizeof captures / sizeof *captures; i++) {
        struct capture *c = captures[i];
        if (!c || c->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        bool own = pthread_equal(c->thread, pthread_self());
        if (!own && (c->mode != CU_STREAM_CAPTURE_MODE_GLOBAL || thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL))
            continue;
        c->invalid = hurt = true;
    }
    return hurt ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Needs the lock. True if the stream is the legacy one and its next work would have to follow a capturing stream. */
bool sim_capture_implicit(struct CUstream_st *stream)
{
    if (stream != stream->head.ctx->legacy) return false;
    for (struct CUstream_st *s = stream->head.ctx->streams; s; s = s->next)
        if (s->capture && s->blocking) return true;
    return false;
}

/* Needs the lock. Refuses such work and invalidates the capture. */
CUresult sim_capture_refuse(struct CUstream_st *stream)
{
    if (stream != stream->head.ctx->legacy) return CUDA_SUCCESS;
    for (struct CUstream_st *s = stream->head.ctx->streams; s; s = s->next) {
        if (!s->capture || !s->blocking) continue;
        s->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return CUDA_SUCCESS;
}

/* ---- operations in a capturing stream; all need the lock ---- */

CUresult sim_capture_op(struct CUstream_st *stream, const struct op *op)
{
    CUgraphNode node;
    NEED(!stream->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    TRY(sim_node_add(stream->capture->graph, stream->tail.v, stream->tail.n, op, &node));
    sim_nodes_set(&stream->tail, &node, 1);
    return CUDA_SUCCESS;
}

CUresult sim_capture_record(struct CUstream_st *stream, CUevent event)
{
    NEED(!stream->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    sim_event_leave_capture(event);
    event->capture = stream->capture;
    event->capture->refs++;
    sim_nodes_set(&event->nodes, stream->tail.v, stream->tail.n);
    return CUDA_SUCCESS;
}

CUresult sim_capture_wait(struct CUstream_st *stream, CUevent event)
{
    if (stream->capture) NEED(!stream->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (!event->capture || !event->capture->graph || (stream->capture && stream->capture != event->capture)) {
        if (stream->capture) stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    NEED(stream != stream->head.ctx->legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (!stream->capture) {
        stream->capture = event->capture;
        stream->capture->refs++;
        sim_nodes_set(&stream->tail, NULL, 0);
    }
    for (size_t i = 0; i < event->nodes.n; i++) sim_nodes_add(&stream->tail, event->nodes.v[i]);
    return CUDA_SUCCESS;
}

/* ---- beginning and end ---- */

static CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode *deps, size_t n, CUstreamCaptureMode mode)
{
    LOCKED;
    struct CUstream_st *s;
    size_t slot = 0;
    NEED_VALUE((unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    TRY(sim_stream(stream, &s));
    NEED(s != s->head.ctx->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    NEED(!s->capture, CUDA_ERROR_ILLEGAL_STATE);
    while (slot < sizeof captures / sizeof *captures && captures[slot]) slot++;
    NEED(slot < sizeof captures / sizeof *captures, CUDA_ERROR_OUT_OF_MEMORY);
    struct capture *c = captures[slot] = s->capture = calloc(1, sizeof *c);
    *c = (struct capture){.refs = 1, .id = ++capture_ids, .origin = s, .mode = mode, .thread = pthread_self()};
    c->graph = graph ? graph : sim_graph_new();
    c->foreign_graph = graph != NULL;
    sim_nodes_set(&s->tail, deps, n);
    return CUDA_SUCCESS;
}
API_PTSZ(cuStreamBeginCapture, (CUstream stream), (stream))
{
    return begin(stream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
API_PTSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
{
    return begin(stream, NULL, NULL, 0, mode);
}
API_PTSZ(cuStreamBeginCaptureToGraph,
         (CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t n,
          CUstreamCaptureMode mode),
         (stream, graph, deps, edges, n, mode))
{
    NEED_VALUE(is(graph, GRAPH) && (deps || !n));
    return begin(stream, graph, deps, n, mode);
}

/* Marks all predecessors of marked nodes. They mostly stand earlier in the list, so one pass is usually enough. */
static void mark_before(const struct nodes *nodes)
{
    bool again = true;
    while (again) {
        again = false;
        for (size_t i = nodes->n; i--;) {
            const struct nodes *before = &nodes->v[i]->before;
            if (!nodes->v[i]->mark) continue;
            for (size_t j = 0; j < before->n; j++) {
                if (before->v[j]->mark) continue;
                before->v[j]->mark = 1;
                again = true;
            }
        }
    }
}

/* True if the tail of the origin follows all work of the other streams of the capture. */
static bool joined(const struct capture *c)
{
    bool all = true;
    for (size_t i = 0; i < c->graph->nodes.n; i++) c->graph->nodes.v[i]->mark = 0;
    for (size_t i = 0; i < c->origin->tail.n; i++) c->origin->tail.v[i]->mark = 1;
    mark_before(&c->graph->nodes);
    for (struct CUstream_st *s = c->origin->head.ctx->streams; s; s = s->next)
        for (size_t i = 0; s->capture == c && i < s->tail.n; i++) all = all && s->tail.v[i]->mark;
    return all;
}

API_PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))
{
    LOCKED;
    struct CUstream_st *s;
    CUresult result = CUDA_SUCCESS;
    NEED_VALUE(graph);
    TRY(sim_stream(stream, &s));
    struct capture *c = s->capture;
    *graph = NULL;
    NEED(c, CUDA_ERROR_ILLEGAL_STATE);
    NEED(c->origin == s, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    NEED(c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || pthread_equal(c->thread, pthread_self()),
         CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (c->invalid) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(c)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    c->refs++;
    for (struct CUstream_st *o = s->head.ctx->streams; o; o = o->next)
        if (o->capture == c) sim_stream_leave_capture(o);
    for (size_t i = 0; i < sizeof captures / sizeof *captures; i++)
        if (captures[i] == c) captures[i] = NULL;
    if (result == CUDA_SUCCESS) {
        *graph = c->graph;
        c->graph = NULL;
    }
    unref(c);
    return result;
}

API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode))
{
    NEED_VALUE(mode && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- queries ---- */

static CUstreamCaptureStatus status_of(const struct CUstream_st *s)
{
    if (!s->capture) return CU_STREAM_CAPTURE_STATUS_NONE;
    return s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

API_PTSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status), (stream, status))
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(status);
    TRY(sim_stream(stream, &s));
    NEED(!sim_capture_implicit(s), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    *status = status_of(s);
    return CUDA_SUCCESS;
}

static CUresult info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                     const CUgraphNode **deps, size_t *n)
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(status);
    TRY(sim_stream(stream, &s));
    NEED(!sim_capture_implicit(s), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    *status = status_of(s);
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id) *id = s->capture->id;
    if (graph) *graph = s->capture->graph;
    if (deps) *deps = s->tail.v;
    if (n) *n = s->tail.n;
    return CUDA_SUCCESS;
}
API_PTSZ(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id), (stream, status, id))
{
    return info(stream, status, id, NULL, NULL, NULL);
}
API_PTSZ(cuStreamGetCaptureInfo_v2,
         (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
          size_t *n),
         (stream, status, id, graph, deps, n))
{
    return info(stream, status, id, graph, deps, n);
}
API_PTSZ(cuStreamGetCaptureInfo_v3,
         (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
          const CUgraphEdgeData **edges, size_t *n),
         (stream, status, id, graph, deps, edges, n))
{
    if (edges) *edges = NULL;
    return info(stream, status, id, graph, deps, n);
}

static CUresult update(CUstream stream, CUgraphNode *deps, size_t n, unsigned flags)
{
    LOCKED;
    struct CUstream_st *s;
    NEED_VALUE(deps || !n);
    TRY(sim_stream(stream, &s));
    NEED(s->capture, CUDA_ERROR_ILLEGAL_STATE);
    if (flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES) sim_nodes_set(&s->tail, NULL, 0);
    for (size_t i = 0; i < n; i++) sim_nodes_add(&s->tail, deps[i]);
    return CUDA_SUCCESS;
}
API_PTSZ(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *deps, size_t n, unsigned flags),
         (stream, deps, n, flags))
{
    return update(stream, deps, n, flags);
}
API_PTSZ(cuStreamUpdateCaptureDependencies_v2,
         (CUstream stream, CUgraphNode *deps, const CUgraphEdgeData *edges, size_t n, unsigned flags),
         (stream, deps, edges, n, flags))
{
    return update(stream, deps, n, flags);
}
