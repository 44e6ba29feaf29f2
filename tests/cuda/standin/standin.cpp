/* The stand-in for the CUDA runtime and cuBLASLt: see standin.h. One lock around everything; work runs on the thread that asks for progress. */
#include "cublasLt.h"
#include "cuda.h"
#include "nccl.h"
#include "emulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

typedef std::vector<std::function<void()>> work_list;
struct CUstream_st {
    int device, priority, running;
    uint64_t issued, done;
    std::deque<std::function<int()>> work; /* 0: it cannot run yet */
    work_list *kept; /* being captured */
    CUgreenCtx part;
};
struct CUdevResourceDesc_st { CUdevResource part; }; /* the driver's to the process's end, as one never frees them */
struct CUgreenCtx_st { int device; CUdevResource part; int streams; };
struct CUgraph_st { int device; work_list work; };
struct CUgraphExec_st {
    int device;
    work_list work;
    CUstream_st *stream; /* of the last launch, which has ended when so much of its work is done */
    uint64_t at;
};
struct CUevent_st {
    CUstream_st *stream;
    uint64_t at;       /* has happened when so much of the stream's work is done */
    std::shared_ptr<uint64_t> stamp; /* the clock of the stand-in then: products count their algorithm's cost. Outlives the event */
    int timed;
};

namespace {

struct region { char *pages, *begin; size_t size, page_bytes; int device; };

struct machine {
    std::recursive_mutex lock;
    std::vector<region> memory;
    std::vector<region> pinned;
    std::vector<CUstream_st *> streams;
    standin_count count;
    int64_t fail_at = getenv("STANDIN_FAIL") != nullptr ? atoll(getenv("STANDIN_FAIL")) : -1, next = 0;
    int devices = getenv("STANDIN_DEVICES") != nullptr ? atoi(getenv("STANDIN_DEVICES")) : 1;
    int skip = getenv("STANDIN_SKIP") != nullptr, stall = 0, old = 0, refuse = 0, open = 0, shut = 1;
    uint64_t clock = 0, pauses = 0;
};
machine gpu;
thread_local int current_device;
thread_local cudaError_t last_error;
thread_local int capturing; /* streams that this thread captures */

typedef std::lock_guard<std::recursive_mutex> guard;

cudaError_t failed(cudaError_t error) { return last_error = error; }

/* Counts a call; 1: it is the one to fail. */
int told_to_fail(const char *name)
{
    gpu.count.calls++;
    if (gpu.fail_at < 0 || gpu.next++ != gpu.fail_at) return 0;
    snprintf(gpu.count.failed, sizeof gpu.count.failed, "%s", name);
    return 1;
}

int misuse(const char *what)
{
    if (gpu.count.misuse++ == 0) snprintf(gpu.count.misused, sizeof gpu.count.misused, "%s", what);
    return 1;
}

#define CALL(error) do { if (told_to_fail(__func__)) return failed(error); } while (0)
#define BLAS_CALL() do { if (told_to_fail(__func__)) return CUBLAS_STATUS_INTERNAL_ERROR; } while (0)
#define CHECK(right, what) do { if (!(right) && misuse(what)) return failed(cudaErrorInvalidValue); } while (0)
#define NOT_CAPTURING() do { if (capturing > 0) { misuse(__func__); return failed(cudaErrorStreamCaptureUnsupported); } } while (0)
#define BLAS_CHECK(right, what) do { if (!(right) && misuse(what)) return CUBLAS_STATUS_INVALID_VALUE; } while (0)

/* The allocation that holds all of [at, at + size), of the right device. */
int inside(const std::vector<region> &regions, const void *at, size_t size, int device)
{
    const char *p = static_cast<const char *>(at);
    for (const region &r : regions)
        if (p >= r.begin && size <= r.size && p <= r.begin + (r.size - size) && (device < 0 || r.device == device)) return 1;
    return 0;
}
int on_device(const void *at, size_t size) { return inside(gpu.memory, at, size, current_device); }
int right_stream(const CUstream_st *stream) { return stream != nullptr && stream->device == current_device; }

/* While the card does nothing the host cannot touch its memory. Each change takes a system call for every allocation: after the first thousand it is
   made one time in eight. */
void shut(int close)
{
    if (close == gpu.shut || (close && gpu.pauses++ > 1000 && gpu.pauses % 8 != 0)) return;
    for (const region &r : gpu.memory)
        if (mprotect(r.pages, r.page_bytes, close ? PROT_NONE : PROT_READ | PROT_WRITE) != 0) { perror("standin: mprotect"); abort(); }
    gpu.shut = close;
}

/* Runs the stream's work up to `until`, at most `most` pieces. */
void advance(CUstream_st *stream, uint64_t until, uint64_t most)
{
    if (gpu.stall || stream->done >= until || stream->running) return;
    if (gpu.open++ == 0) shut(0);
    stream->running = 1;
    for (; most > 0 && stream->done < until; most--) {
        const std::function<int()> work = stream->work.front();
        if (!work()) break;
        stream->work.pop_front();
        stream->done++;
        gpu.count.ran++;
        gpu.clock++;
    }
    stream->running = 0;
    if (--gpu.open == 0) shut(1);
}

/* The work says whether it could run: it is asked again until then. */
void put_waiting(CUstream_st *stream, std::function<int()> work)
{
    if (stream->kept != nullptr) {
        stream->kept->push_back(std::move(work));
        return;
    }
    stream->work.push_back(std::move(work));
    stream->issued++;
}

void put(CUstream_st *stream, std::function<void()> work) { put_waiting(stream, [=] { work(); return 1; }); }

int is_open(const CUstream_st *stream)
{
    for (const CUstream_st *one : gpu.streams)
        if (one == stream) return 1;
    return 0;
}

size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

} /* namespace */

/* ---- steering ---- */

void standin_reset(int devices)
{
    guard g(gpu.lock);
    memset(&gpu.count, 0, sizeof gpu.count);
    gpu.fail_at = -1;
    gpu.devices = devices;
    gpu.skip = gpu.stall = gpu.refuse = gpu.old = 0;
    last_error = cudaSuccess;
}

void standin_fail(int64_t call)
{
    guard g(gpu.lock);
    gpu.fail_at = call;
    gpu.next = 0;
    gpu.count.failed[0] = 0;
}

void standin_skip(int on) { guard g(gpu.lock); gpu.skip = on; }
void standin_refuse(int on) { guard g(gpu.lock); gpu.refuse = on; }
void standin_stall(int on) { guard g(gpu.lock); gpu.stall = on; }
void standin_old(int on) { guard g(gpu.lock); gpu.old = on; }
standin_count standin_counted(void) { guard g(gpu.lock); return gpu.count; }

void standin_enqueue(CUstream_st *stream, std::function<void()> work)
{
    guard g(gpu.lock);
    if (told_to_fail("kernel launch")) { failed(cudaErrorLaunchFailure); return; }
    if (!right_stream(stream)) { misuse("launch on a stream of another device"); failed(cudaErrorInvalidResourceHandle); return; }
    if (gpu.skip) put(stream, [] {});
    else put(stream, std::move(work));
}

/* ---- the CUDA runtime ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    guard g(gpu.lock);
    CALL(cudaErrorInitializationError);
    *count = gpu.devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    guard g(gpu.lock);
    CALL(cudaErrorInvalidDevice);
    CHECK(device >= 0 && device < gpu.devices, "cudaSetDevice: no such device");
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    guard g(gpu.lock);
    CALL(cudaErrorInvalidValue);
    CHECK(device >= 0 && device < gpu.devices, "cudaDeviceGetAttribute: no such device");
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? (gpu.old == 1 ? 7 : 9) : attribute == cudaDevAttrComputeCapabilityMinor ? 0
           : attribute == cudaDevAttrMultiProcessorCount ? 132 : 227 * 1024;
    return cudaSuccess;
}

cudaError_t standin_ask_shared(const void *kernel, int bytes)
{
    guard g(gpu.lock);
    if (told_to_fail("cudaFuncSetAttribute")) return failed(cudaErrorInvalidValue);
    CHECK(bytes <= 227 << 10, "cudaFuncSetAttribute: more shared memory than there is");
    emulator_ask_shared(kernel, static_cast<size_t>(bytes));
    return cudaSuccess;
}

cudaError_t standin_ask_threads(cudaFuncAttributes *attributes)
{
    guard g(gpu.lock);
    if (told_to_fail("cudaFuncGetAttributes")) return failed(cudaErrorInvalidValue);
    CHECK(gpu.old != 1, "cudaFuncGetAttributes: there is no code for this card");
    attributes->maxThreadsPerBlock = 64;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    guard g(gpu.lock);
    CALL(cudaErrorInvalidDevice);
    CHECK(device >= 0 && device < gpu.devices && size >= 13, "cudaDeviceGetPCIBusId: no such device, or no room for its bus");
    snprintf(text, static_cast<size_t>(size), "0000:%02x:00.0", static_cast<unsigned>(device + 16));
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t size)
{
    guard g(gpu.lock);
    region r;
    CALL(cudaErrorMemoryAllocation);
    NOT_CAPTURING();
    r.size = size;
    r.device = current_device;
    r.page_bytes = (size + 256 + page() - 1) / page() * page();
    r.pages = static_cast<char *>(mmap(nullptr, r.page_bytes + page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (r.pages == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
    memset(r.pages, 0xff, r.page_bytes);
    r.begin = r.pages + (r.page_bytes - size) / 256 * 256; /* as close to the page behind as the alignment lets it */
    if (gpu.shut) mprotect(r.pages, r.page_bytes, PROT_NONE);
    mprotect(r.pages + r.page_bytes, page(), PROT_NONE);
    gpu.memory.push_back(r);
    gpu.count.live++;
    *pointer = r.begin;
    return cudaSuccess;
}

/* Of 80 GB; each allocation takes what it is asked for. */
cudaError_t cudaMemGetInfo(size_t *available, size_t *all)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    *available = *all = 80000000000u;
    for (const region &r : gpu.memory) *available -= r.device == current_device ? r.size : 0;
    return cudaSuccess;
}

static int give_back(std::vector<region> &regions, void *pointer, int mapped)
{
    for (size_t i = 0; i < regions.size(); i++) {
        if (regions[i].begin != pointer) continue;
        if (mapped) munmap(regions[i].pages, regions[i].page_bytes + page());
        else free(regions[i].pages);
        regions.erase(regions.begin() + static_cast<long>(i));
        gpu.count.live--;
        return 1;
    }
    return 0;
}

/* Waits for all the card does; 0: that would be for ever. Other members of a collective may still come to it, on threads of their own. */
static int wait_for_card(void)
{
    const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
        {
            guard g(gpu.lock);
            int idle = 1;
            for (CUstream_st *stream : gpu.streams) {
                if (stream->device != current_device) continue;
                advance(stream, stream->issued, UINT64_MAX);
                idle &= stream->done == stream->issued;
            }
            if (idle || gpu.stall) return idle;
        }
        std::this_thread::yield();
    }
    return 0;
}

/* A call that gives something back does so also when it fails: the error is an earlier one's. */
cudaError_t cudaFree(void *pointer)
{
    const int idle = wait_for_card();
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    NOT_CAPTURING();
    CHECK(idle, "cudaFree that would wait for ever");
    CHECK(give_back(gpu.memory, pointer, 1), "cudaFree of what cudaMalloc did not give");
    return fails ? failed(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned)
{
    guard g(gpu.lock);
    region r;
    CALL(cudaErrorMemoryAllocation);
    NOT_CAPTURING();
    r.pages = r.begin = static_cast<char *>(malloc(size));
    if (r.pages == nullptr) return failed(cudaErrorMemoryAllocation);
    r.size = r.page_bytes = size;
    r.device = -1;
    gpu.pinned.push_back(r);
    gpu.count.live++;
    *pointer = r.begin;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *pointer)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    NOT_CAPTURING();
    CHECK(give_back(gpu.pinned, pointer, 0), "cudaFreeHost of what cudaHostAlloc did not give");
    return fails ? failed(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t stream)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    CHECK(right_stream(stream), "cudaMemcpyAsync on a stream of another device");
    CHECK(kind == cudaMemcpyDeviceToHost ? inside(gpu.pinned, to, size, -1) : on_device(to, size), "cudaMemcpyAsync to a wrong place");
    CHECK(kind == cudaMemcpyHostToDevice ? inside(gpu.pinned, from, size, -1) : on_device(from, size), "cudaMemcpyAsync from a wrong place");
    put(stream, [=] { memmove(to, from, size); });
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step, size_t size, size_t rows, cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    CHECK(kind == cudaMemcpyDeviceToDevice && right_stream(stream), "cudaMemcpy2DAsync on a stream of another device, or to or from the host");
    CHECK(size > 0 && rows > 0 && to_step >= size && from_step >= size, "cudaMemcpy2DAsync of overlapping rows");
    CHECK(on_device(to, (rows - 1) * to_step + size) && on_device(from, (rows - 1) * from_step + size), "cudaMemcpy2DAsync of a wrong place");
    put(stream, [=] {
        for (size_t i = 0; i < rows; i++) memmove(static_cast<char *>(to) + i * to_step, static_cast<const char *>(from) + i * from_step, size);
    });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    CHECK(right_stream(stream) && on_device(to, size), "cudaMemsetAsync of a wrong place");
    put(stream, [=] { memset(to, value, size); });
    return cudaSuccess;
}

/* As of a card: -5 goes first. */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

static cudaError_t make_stream(cudaStream_t *stream, int priority, CUgreenCtx part)
{
    CHECK(priority <= 0 && priority >= -5, "a priority that the card has not");
    NOT_CAPTURING();
    *stream = new CUstream_st();
    (*stream)->device = current_device;
    (*stream)->priority = priority;
    (*stream)->part = part;
    gpu.streams.push_back(*stream);
    gpu.count.live++;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int priority)
{
    guard g(gpu.lock);
    CALL(cudaErrorMemoryAllocation);
    return make_stream(stream, priority, nullptr);
}

/* ---- green contexts: as of an H100, whose 132 multiprocessors come in groups of 8 ---- */

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    CHECK(device == current_device && type == CU_DEV_RESOURCE_TYPE_SM, "cuDeviceGetDevResource of something else");
    *resource = { type, 0, 0, { 132 } };
    return cudaSuccess;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *groups, const CUdevResource *input, CUdevResource *remaining, unsigned flags,
                                     unsigned least)
{
    static unsigned splits;
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    CHECK(input->split == 0 && flags == 0 && least > 0, "a split of what was split, or of nothing");
    const unsigned each = (least + 7) / 8 * 8, whole = input->sm.smCount / each;
    if (*groups > whole) *groups = whole;
    splits++;
    for (unsigned i = 0; i < *groups; i++) result[i] = { CU_DEV_RESOURCE_TYPE_SM, splits, i * each, { each } };
    *remaining = { CU_DEV_RESOURCE_TYPE_SM, splits, *groups * each, { input->sm.smCount - *groups * each } };
    return cudaSuccess;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *made, CUdevResource *resources, unsigned count)
{
    static std::deque<CUdevResourceDesc_st> all;
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    CHECK(count > 0, "a part of nothing");
    CUdevResource sum = resources[0];
    for (unsigned i = 1; i < count; i++) {
        CHECK(resources[i].split == sum.split && resources[i].first == sum.first + sum.sm.smCount, "groups of two splits, or not in a row");
        sum.sm.smCount += resources[i].sm.smCount;
    }
    all.push_back({ sum });
    *made = &all.back();
    return cudaSuccess;
}

CUresult cuGreenCtxCreate(CUgreenCtx *made, CUdevResourceDesc chosen, CUdevice device, unsigned flags)
{
    guard g(gpu.lock);
    CALL(cudaErrorMemoryAllocation);
    CHECK(device == current_device && flags == CU_GREEN_CTX_DEFAULT_STREAM, "cuGreenCtxCreate on another device");
    *made = new CUgreenCtx_st{ device, chosen->part, 0 };
    gpu.count.live++;
    return cudaSuccess;
}

CUresult cuGreenCtxDestroy(CUgreenCtx part)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    CHECK(part->streams == 0, "cuGreenCtxDestroy before its streams");
    delete part;
    gpu.count.live--;
    return fails ? cudaErrorUnknown : cudaSuccess;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx part, unsigned flags, int priority)
{
    guard g(gpu.lock);
    CALL(cudaErrorMemoryAllocation);
    CHECK(part->device == current_device && flags == CU_STREAM_NON_BLOCKING, "cuGreenCtxStreamCreate on another device");
    part->streams++;
    return make_stream(stream, priority, part);
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *part)
{
    guard g(gpu.lock);
    *part = stream->part;
    return cudaSuccess;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx part, CUdevResource *resource, CUdevResourceType)
{
    guard g(gpu.lock);
    *resource = part->part;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long)
{
#define ENTRY(call) { #call, reinterpret_cast<void *>(&call) }
    static const struct { const char *name; void *function; } entries[] = {
        ENTRY(cuDeviceGetDevResource), ENTRY(cuDevSmResourceSplitByCount), ENTRY(cuDevResourceGenerateDesc), ENTRY(cuGreenCtxCreate),
        ENTRY(cuGreenCtxDestroy), ENTRY(cuGreenCtxStreamCreate), ENTRY(cuStreamGetGreenCtx), ENTRY(cuGreenCtxGetDevResource) };
#undef ENTRY
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    *function = nullptr; /* what the driver does not have is no error */
    for (const auto &entry : entries)
        if (version >= 12050 && gpu.old != 2 && strcmp(entry.name, name) == 0) *function = entry.function;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    guard g(gpu.lock);
    *priority = stream->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    NOT_CAPTURING();
    CHECK(stream != nullptr, "cudaStreamDestroy of NULL");
    advance(stream, stream->issued, UINT64_MAX); /* what was given to it still runs */
    CHECK(stream->done == stream->issued, "cudaStreamDestroy of a stream whose work cannot end yet");
    for (size_t i = 0; i < gpu.streams.size(); i++)
        if (gpu.streams[i] == stream) { gpu.streams.erase(gpu.streams.begin() + static_cast<long>(i)); break; }
    if (stream->part != nullptr) stream->part->streams--;
    delete stream;
    gpu.count.live--;
    return fails ? failed(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    guard g(gpu.lock);
    CALL(cudaErrorLaunchFailure);
    NOT_CAPTURING();
    CHECK(stream != nullptr, "cudaStreamQuery of NULL");
    advance(stream, stream->issued, 64);
    return stream->done == stream->issued ? cudaSuccess : failed(cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    NOT_CAPTURING();
    CHECK(right_stream(stream) && event != nullptr, "cudaStreamWaitEvent on a stream of another device");
    if (event->stream != nullptr) {
        CUstream_st *other = event->stream;
        const uint64_t at = event->at;
        put_waiting(stream, [=] {
            if (!is_open(other)) return 1; /* all its work has run */
            advance(other, at, UINT64_MAX);
            return other->done >= at ? 1 : 0;
        });
    }
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    if (capturing > 0) misuse(__func__); /* which CUDA takes, as a node of the graph */
    CHECK(right_stream(stream), "cudaLaunchHostFunc on a stream of another device");
    put(stream, [=] { function(user); });
    return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    CHECK(right_stream(stream) && stream->kept == nullptr, "cudaStreamBeginCapture of a stream that is being captured");
    CHECK(mode == cudaStreamCaptureModeThreadLocal, "cudaStreamBeginCapture that hinders other threads, or nobody");
    stream->kept = new work_list();
    capturing++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    *graph = nullptr;
    CHECK(stream->kept != nullptr, "cudaStreamEndCapture of a stream that is not being captured");
    if (!fails) {
        *graph = new CUgraph_st();
        (*graph)->device = stream->device;
        (*graph)->work = std::move(*stream->kept);
        gpu.count.live++;
    }
    delete stream->kept;
    stream->kept = nullptr;
    capturing--;
    return fails ? failed(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    guard g(gpu.lock);
    CALL(cudaErrorMemoryAllocation);
    NOT_CAPTURING();
    CHECK(graph != nullptr && flags == 0, "cudaGraphInstantiate");
    *exec = new CUgraphExec_st();
    (*exec)->device = graph->device;
    (*exec)->work = graph->work;
    gpu.count.live++;
    gpu.count.captured++;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    guard g(gpu.lock);
    CALL(cudaErrorLaunchFailure);
    CHECK(exec != nullptr && right_stream(stream) && exec->device == stream->device, "cudaGraphLaunch on a stream of another device");
    CHECK(stream->kept == nullptr, "cudaGraphLaunch into a capture");
    for (const std::function<void()> &work : exec->work) put(stream, work);
    exec->stream = stream;
    exec->at = stream->issued;
    gpu.count.launched++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    CHECK(graph != nullptr, "cudaGraphDestroy of NULL");
    delete graph;
    gpu.count.live--;
    return fails ? failed(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    CHECK(exec != nullptr && (exec->stream == nullptr || exec->stream->done >= exec->at), "cudaGraphExecDestroy of a graph under way");
    delete exec;
    gpu.count.live--;
    return fails ? failed(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    guard g(gpu.lock);
    CALL(cudaErrorMemoryAllocation);
    *event = new CUevent_st();
    (*event)->stamp = std::make_shared<uint64_t>(0);
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    gpu.count.live++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    CHECK(event != nullptr, "cudaEventDestroy of NULL");
    delete event;
    gpu.count.live--;
    return fails ? failed(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    NOT_CAPTURING();
    CHECK(right_stream(stream) && event != nullptr, "cudaEventRecord on a stream of another device");
    const std::shared_ptr<uint64_t> stamp = event->stamp;
    put(stream, [=] { *stamp = gpu.clock; });
    event->stream = stream;
    event->at = stream->issued;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    guard g(gpu.lock);
    CALL(cudaErrorLaunchFailure);
    NOT_CAPTURING();
    CHECK(event != nullptr, "cudaEventQuery of NULL");
    if (event->stream == nullptr) return cudaSuccess;
    advance(event->stream, event->at, 64);
    return event->stream->done >= event->at ? cudaSuccess : failed(cudaErrorNotReady); /* it stays, as CUDA's does */
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    guard g(gpu.lock);
    CALL(cudaErrorUnknown);
    CHECK(start->timed && end->timed && end->stream != nullptr && end->stream->done >= end->at, "cudaEventElapsedTime too early");
    *milliseconds = static_cast<float>(*end->stamp - *start->stamp) * 1e-3f;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInitializationError: return "cudaErrorInitializationError";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorCallRequiresNewerDriver: return "cudaErrorCallRequiresNewerDriver";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    default: return "cudaErrorUnknown";
    }
}

const char *cudaGetErrorString(cudaError_t) { return "told by the stand-in"; }

/* ---- cuBLASLt ---- */

namespace {

/* What the opaque structs hold. */
enum { DESC_COMPUTE, DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS, DESC_AUX, DESC_AUX_LD };
enum { LAYOUT_TYPE, LAYOUT_ROWS, LAYOUT_COLUMNS, LAYOUT_LD };
enum { ALGO_NUMBER, ALGO_WORKSPACE, ALGO_ALIGNMENT };

/* A matrix as the product sees it, after op(): element (i, j) is data[i * row + j * column]. */
struct operand { const char *data; cudaDataType_t type; int64_t rows, columns, row, column; };

size_t element_bytes(uint64_t type) { return type == CUDA_R_16BF ? 2 : 4; }

size_t layout_bytes(const cublasLtMatrixLayoutOpaque_t *l)
{
    return static_cast<size_t>(l->data[LAYOUT_LD] * (l->data[LAYOUT_COLUMNS] - 1) + l->data[LAYOUT_ROWS]) * element_bytes(l->data[LAYOUT_TYPE]);
}

operand operand_of(const void *data, const cublasLtMatrixLayoutOpaque_t *l, uint64_t op)
{
    operand o;
    const int64_t ld = static_cast<int64_t>(l->data[LAYOUT_LD]);
    o.data = static_cast<const char *>(data);
    o.type = static_cast<cudaDataType_t>(l->data[LAYOUT_TYPE]);
    o.rows = static_cast<int64_t>(l->data[op == CUBLAS_OP_T ? LAYOUT_COLUMNS : LAYOUT_ROWS]);
    o.columns = static_cast<int64_t>(l->data[op == CUBLAS_OP_T ? LAYOUT_ROWS : LAYOUT_COLUMNS]);
    o.row = op == CUBLAS_OP_T ? ld : 1;
    o.column = op == CUBLAS_OP_T ? 1 : ld;
    return o;
}

/* tf32 keeps 10 bits of the fraction; the hardware's conversion rounds to nearest, ties away. */
float rounded(float x, int tf32)
{
    uint32_t bits;
    if (!tf32) return x;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

float element(const operand &o, int64_t i, int64_t j, int tf32)
{
    const char *at = o.data + (i * o.row + j * o.column) * static_cast<int64_t>(element_bytes(o.type));
    float value;
    uint16_t half;
    uint32_t bits;
    if (o.type != CUDA_R_16BF) { memcpy(&value, at, 4); return rounded(value, tf32); }
    memcpy(&half, at, 2);
    bits = static_cast<uint32_t>(half) << 16;
    memcpy(&value, &bits, 4);
    return value;
}

/* tanh GELU, and its derivative */
double gelu(double x) { return 0.5 * x * (1.0 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x)
{
    const double t = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.79788456080286536 * (1.0 + 3.0 * 0.044715 * x * x);
}

/* What a product's result goes through: a bias along the columns; GELU, with what it is taken of kept in aux; its derivative at aux. */
struct tail { uint64_t epilogue; char *bias, *aux; int64_t ld; cudaDataType_t type; };

/* Element i of an array of floats or bf16. */
float read_at(const void *array, int64_t i, cudaDataType_t type)
{
    uint32_t bits = 0;
    float x;
    if (type == CUDA_R_16BF) bits = static_cast<uint32_t>(static_cast<const uint16_t *>(array)[i]) << 16;
    else memcpy(&bits, static_cast<const char *>(array) + 4 * i, 4);
    memcpy(&x, &bits, 4);
    return x;
}
void write_at(void *array, int64_t i, cudaDataType_t type, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (type != CUDA_R_16BF) { memcpy(static_cast<char *>(array) + 4 * i, &bits, 4); return; }
    bits = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    static_cast<uint16_t *>(array)[i] = static_cast<uint16_t>(bits);
}

float finished(const tail &t, float x, int64_t i, int64_t j)
{
    if (t.epilogue & CUBLASLT_EPILOGUE_BIAS) x += read_at(t.bias, i, t.type);
    if (t.epilogue == CUBLASLT_EPILOGUE_DGELU)
        return static_cast<float>(static_cast<double>(x) * gelu_slope(static_cast<double>(read_at(t.aux, j * t.ld + i, t.type))));
    if ((t.epilogue & CUBLASLT_EPILOGUE_GELU_AUX) != CUBLASLT_EPILOGUE_GELU_AUX) return x;
    write_at(t.aux, j * t.ld + i, t.type, x);
    return static_cast<float>(gelu(static_cast<double>(x)));
}

/* d (m x n, columns ld apart) = a b + beta c, finished, a chain of f32 over k ascending. */
void product(const operand &a, const operand &b, float alpha, float beta, const void *c, char *d, int64_t ld, const tail &t, int tf32)
{
    const int64_t m = a.rows, n = b.columns, k = a.columns;
    std::vector<float> columns(static_cast<size_t>(m * k)), sum(static_cast<size_t>(m));
    for (int64_t p = 0; p < k; p++)
        for (int64_t i = 0; i < m; i++) columns[static_cast<size_t>(p * m + i)] = element(a, i, p, tf32);
    for (int64_t j = 0; j < n; j++) {
        float *s = sum.data();
        for (int64_t i = 0; i < m; i++) s[i] = 0.0f;
        for (int64_t p = 0; p < k; p++) {
            const float *column = columns.data() + p * m, x = element(b, p, j, tf32);
            for (int64_t i = 0; i < m; i++) s[i] += column[i] * x;
        }
        for (int64_t i = 0; i < m; i++)
            write_at(d, j * ld + i, t.type, finished(t, alpha * s[i] + (beta != 0.0f ? beta * read_at(c, j * ld + i, t.type) : 0.0f), i, j));
    }
}

template <class T> cublasStatus_t destroyed(T *object, const char *name)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(name);
    BLAS_CHECK(object != nullptr, name);
    delete object;
    gpu.count.live--;
    return fails ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

} /* namespace */

struct cublasLtContext { int device; };

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    guard g(gpu.lock);
    BLAS_CALL();
    *handle = new cublasLtContext();
    (*handle)->device = current_device;
    gpu.count.live++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroyed(handle, __func__); }
const char *cublasLtGetStatusString(cublasStatus_t) { return "told by the stand-in"; }

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    guard g(gpu.lock);
    BLAS_CALL();
    BLAS_CHECK(scale == CUDA_R_32F, "cublasLtMatmulDescCreate: scale type");
    *desc = new cublasLtMatmulDescOpaque_t();
    (*desc)->data[DESC_COMPUTE] = compute;
    (*desc)->data[DESC_EPILOGUE] = CUBLASLT_EPILOGUE_DEFAULT;
    gpu.count.live++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroyed(desc, __func__); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size)
{
    guard g(gpu.lock);
    const int field = attribute == CUBLASLT_MATMUL_DESC_TRANSA ? DESC_TRANSA : attribute == CUBLASLT_MATMUL_DESC_TRANSB ? DESC_TRANSB
                    : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE ? DESC_EPILOGUE : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ? DESC_AUX
                    : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD ? DESC_AUX_LD : DESC_BIAS;
    BLAS_CALL();
    BLAS_CHECK(size == (field >= DESC_BIAS ? sizeof(void *) : sizeof(int32_t)), "cublasLtMatmulDescSetAttribute: size");
    desc->data[field] = 0;
    memcpy(&desc->data[field], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t ld)
{
    guard g(gpu.lock);
    BLAS_CALL();
    BLAS_CHECK(rows > 0 && columns > 0 && ld >= static_cast<int64_t>(rows), "cublasLtMatrixLayoutCreate: shape");
    *layout = new cublasLtMatrixLayoutOpaque_t();
    (*layout)->data[LAYOUT_TYPE] = type;
    (*layout)->data[LAYOUT_ROWS] = rows;
    (*layout)->data[LAYOUT_COLUMNS] = columns;
    (*layout)->data[LAYOUT_LD] = static_cast<uint64_t>(ld);
    gpu.count.live++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroyed(layout, __func__); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    guard g(gpu.lock);
    BLAS_CALL();
    *preference = new cublasLtMatmulPreferenceOpaque_t();
    gpu.count.live++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return destroyed(preference, __func__); }

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size)
{
    guard g(gpu.lock);
    BLAS_CALL();
    BLAS_CHECK(size == (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8u : 4u), "cublasLtMatmulPreferenceSetAttribute: size");
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) memcpy(&preference->data[0], value, 8);
    if (attribute < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) return CUBLAS_STATUS_SUCCESS;
    preference->data[1 + attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = 0;
    memcpy(&preference->data[1 + attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, 4);
    return CUBLAS_STATUS_SUCCESS;
}

static int is_tail(const cublasLtMatmulDescOpaque_t *desc) { return desc->data[DESC_EPILOGUE] >= CUBLASLT_EPILOGUE_GELU_AUX; }

/* Three algorithms of different cost and workspace; the second is the fastest. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *result, int *found)
{
    guard g(gpu.lock);
    BLAS_CALL();
    BLAS_CHECK(handle->device == current_device && a->data[LAYOUT_TYPE] == b->data[LAYOUT_TYPE], "cublasLtMatmulAlgoGetHeuristic");
    *found = 0;
    if (gpu.refuse == 1 && is_tail(desc)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (gpu.refuse == 2 && is_tail(desc)) return CUBLAS_STATUS_INVALID_VALUE;
    for (uint64_t number = 1; number <= 3 && *found < wanted; number++) {
        cublasLtMatmulHeuristicResult_t *r = &result[*found];
        memset(r, 0, sizeof *r);
        r->algo.data[ALGO_NUMBER] = number;
        r->state = gpu.refuse == 4 && is_tail(desc) ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
        r->algo.data[ALGO_WORKSPACE] = r->workspaceSize = static_cast<size_t>(number - 1) * 256;
        for (int i = 0; i < 4; i++) r->algo.data[ALGO_ALIGNMENT + i] = preference->data[1 + i];
        if (r->workspaceSize <= preference->data[0]) (*found)++;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Told what it is aligned by, up to 256: an algorithm for less is slower. */
static int told(const void *pointer, uint64_t bytes)
{
    return bytes >= 256 || (bytes > 0 && reinterpret_cast<uintptr_t>(pointer) % (2 * bytes) != 0);
}

static int aligned(const void *pointer, uint64_t bytes) { return bytes == 0 || reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta, const void *c, cublasLtMatrixLayout_t c_layout,
                              void *d, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_size,
                              cudaStream_t stream)
{
    guard g(gpu.lock);
    const operand x = operand_of(a, a_layout, desc->data[DESC_TRANSA]), y = operand_of(b, b_layout, desc->data[DESC_TRANSB]);
    const int64_t m = static_cast<int64_t>(d_layout->data[LAYOUT_ROWS]), n = static_cast<int64_t>(d_layout->data[LAYOUT_COLUMNS]);
    const int64_t ld = static_cast<int64_t>(d_layout->data[LAYOUT_LD]);
    const int tf32 = desc->data[DESC_COMPUTE] == CUBLAS_COMPUTE_32F_FAST_TF32;
    const float scale = *static_cast<const float *>(alpha), keep = *static_cast<const float *>(beta);
    const cudaDataType_t type = static_cast<cudaDataType_t>(d_layout->data[LAYOUT_TYPE]);
    tail t = { desc->data[DESC_EPILOGUE], nullptr, nullptr, static_cast<int64_t>(desc->data[DESC_AUX_LD]), type };
    const size_t bytes = element_bytes(static_cast<uint64_t>(type));
    const uint64_t cost = algo->data[ALGO_NUMBER] == 2 ? 1 : 4, used = algo->data[ALGO_WORKSPACE];
    BLAS_CALL();
    memcpy(&t.bias, &desc->data[DESC_BIAS], sizeof t.bias);
    memcpy(&t.aux, &desc->data[DESC_AUX], sizeof t.aux);
    const int with_bias = (t.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0, with_aux = t.epilogue >= CUBLASLT_EPILOGUE_GELU_AUX;
    BLAS_CHECK(handle->device == current_device && right_stream(stream), "cublasLtMatmul on a stream of another device");
    BLAS_CHECK(x.rows == m && y.columns == n && x.columns == y.rows, "cublasLtMatmul: shapes");
    BLAS_CHECK(c_layout == d_layout && (type == CUDA_R_32F || x.type == CUDA_R_16BF) && x.type == y.type, "cublasLtMatmul: types");
    BLAS_CHECK(on_device(a, layout_bytes(a_layout)) && on_device(b, layout_bytes(b_layout))
               && on_device(d, layout_bytes(d_layout)) && on_device(c, layout_bytes(c_layout)),
               "cublasLtMatmul: an operand is not in device memory");
    BLAS_CHECK(!with_bias || on_device(t.bias, static_cast<size_t>(m) * bytes), "cublasLtMatmul: bias is not in device memory");
    BLAS_CHECK(!with_aux || (t.ld % 8 == 0 && t.ld >= m && aligned(t.aux, 16) && t.aux != d
               && on_device(t.aux, static_cast<size_t>(t.ld * (n - 1) + m) * bytes)), "cublasLtMatmul: what GELU is taken of");
    BLAS_CHECK(used <= workspace_size && (used == 0 || (on_device(workspace, workspace_size) && aligned(workspace, 256))),
               "cublasLtMatmul: workspace");
    BLAS_CHECK(aligned(a, algo->data[ALGO_ALIGNMENT]) && aligned(b, algo->data[ALGO_ALIGNMENT + 1]) && aligned(d, algo->data[ALGO_ALIGNMENT + 3])
               && aligned(c, algo->data[ALGO_ALIGNMENT + 2]),
               "cublasLtMatmul: alignment");
    BLAS_CHECK(told(a, algo->data[ALGO_ALIGNMENT]) && told(b, algo->data[ALGO_ALIGNMENT + 1]), "cublasLtMatmul: operands lie better than was told");
    if (gpu.refuse == 3 && is_tail(desc)) return CUBLAS_STATUS_NOT_SUPPORTED;
    gpu.count.products++;
    gpu.count.fused += with_aux;
    gpu.count.ragged += x.type == CUDA_R_16BF && (a_layout->data[LAYOUT_ROWS] | b_layout->data[LAYOUT_ROWS] | d_layout->data[LAYOUT_ROWS]) % 8 != 0;
    put(stream, [=] {
        gpu.clock += cost;
        if (gpu.skip) return;
        if (used > 0) memset(workspace, 0xff, workspace_size); /* all of it is the product's */
        product(x, y, scale, keep, c, static_cast<char *>(d), ld, t, tf32);
    });
    return CUBLAS_STATUS_SUCCESS;
}

#include "standin_nccl.cpp"
