/* The stand-in for NCCL (standin.h), the last part of standin.cpp.
   Members of a clique meet: number n of the collectives of one meets number n of the others, number n of the messages from a to b likewise. What has
   been called between ncclGroupStart and ncclGroupEnd is one piece of work, which ends when all its meetings have taken place. */
namespace standin_nccl {

enum { NCCL_POLLS = 3 }; /* so often a call is found in progress */
enum meeting_kind { MEETING_REDUCE, MEETING_BROADCAST, MEETING_REDUCE_SCATTER, MEETING_ALL_GATHER, MEETING_MESSAGE };

/* What one member brings to a meeting. `at`: its piece is the stream's work number `at`; valid once issued. */
struct party { const void *from; void *to; CUstream_st *stream; uint64_t at; int called, issued, arrived; };

struct meeting {
    meeting_kind kind;
    size_t count;
    ncclDataType_t type;
    int root, parties, arrived, held;
    std::vector<party> party_of; /* a rank each; of a message only two take part */
};

struct clique {
    std::vector<ncclComm *> member;
    int ranks, joined, finalized, failed;
    std::map<uint64_t, std::shared_ptr<meeting>> collective;
    std::map<std::pair<int, uint64_t>, std::shared_ptr<meeting>> message; /* from * ranks + to, number */
};

struct appointment { std::shared_ptr<meeting> at; int rank; };

/* Pieces of work outlive the communicator. */
struct member { int aborted; int64_t under_way; };

struct network {
    std::map<uint64_t, std::shared_ptr<clique>> cliques;
    uint64_t ids = 0;
    int version = 0;
    std::map<int, int> error; /* of a card */
};
network net;

struct called { ncclComm *comm; CUstream_st *stream; appointment appointed; int connects; };
thread_local std::vector<called> group;
thread_local int group_depth, group_failed;

enum comm_call { COMM_IDLE, COMM_INIT, COMM_GROUP, COMM_FINALIZE, COMM_FINALIZED };

} /* namespace */

using namespace standin_nccl;

struct ncclComm {
    std::shared_ptr<clique> c;
    std::shared_ptr<member> m;
    int rank, device, polls;
    comm_call call;
    std::vector<called> pending; /* of COMM_GROUP */
    uint64_t stream_issued;      /* of its stream at ncclGroupEnd */
    uint64_t collectives;
    std::map<int, uint64_t> messages; /* from * ranks + to: how many */
    int ring;                         /* connected */
    std::map<int, int> connected;     /* from * ranks + to */
};

namespace standin_nccl {

#define NCCL_CALL() do { if (told_to_fail(__func__)) return ncclInternalError; } while (0)
#define NCCL_OP() do { if (told_to_fail(__func__)) { group_failed = group_depth > 0; return ncclInternalError; } } while (0)
#define NCCL_CHECK(right, what) do { if (!(right) && misuse(what)) return ncclInvalidUsage; } while (0)

size_t nccl_bytes(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 8; }

/* Elements [first, first + count) of all parties for one of them. */
template <class T> void sum_for(const meeting &at, size_t root, size_t first)
{
    const size_t ranks = at.party_of.size();
    std::vector<T> sum(at.count);
    for (size_t step = 1; step <= ranks; step++) { /* a ring's order: the root is last */
        const T *from = static_cast<const T *>(at.party_of[(root + step) % ranks].from) + first;
        for (size_t i = 0; i < at.count; i++) sum[i] = step == 1 ? from[i] : sum[i] + from[i];
    }
    memcpy(at.party_of[root].to, sum.data(), at.count * sizeof(T));
}

template <class T> void sum_up(const meeting &at)
{
    if (at.kind == MEETING_REDUCE) sum_for<T>(at, static_cast<size_t>(at.root), 0);
    else
        for (size_t r = 0; r < at.party_of.size(); r++) sum_for<T>(at, r, r * at.count);
}

void gather(const meeting &at)
{
    const size_t bytes = at.count * nccl_bytes(at.type);
    for (const party &one : at.party_of)
        for (size_t r = 0; r < at.party_of.size(); r++) memmove(static_cast<char *>(one.to) + r * bytes, at.party_of[r].from, bytes);
}

/* All streams have come to it. */
void hold(meeting &at)
{
    const void *from = at.party_of[static_cast<size_t>(at.root)].from;
    at.held = 1;
    gpu.count.exchanges++;
    if (gpu.skip) return;
    if (at.kind == MEETING_ALL_GATHER) gather(at);
    else if (at.kind == MEETING_REDUCE || at.kind == MEETING_REDUCE_SCATTER)
        at.type == ncclFloat32 ? sum_up<float>(at) : at.type == ncclFloat64 ? sum_up<double>(at) : sum_up<int64_t>(at);
    else
        for (const party &one : at.party_of)
            if (one.called && one.to != nullptr) memmove(one.to, from, at.count * nccl_bytes(at.type));
}

/* The stream of `rank` has come to the meeting; 1: it has taken place. */
int attend(const appointment &appointed)
{
    meeting &at = *appointed.at;
    party &own = at.party_of[static_cast<size_t>(appointed.rank)];
    if (!own.arrived) {
        own.arrived = 1;
        at.arrived++;
    }
    for (party &other : at.party_of) /* what runs elsewhere goes on by itself */
        if (!at.held && other.issued && !other.arrived && is_open(other.stream)) advance(other.stream, other.at, UINT64_MAX);
    if (!at.held && at.arrived == at.parties) hold(at);
    return at.held;
}

/* Puts what was called on the stream: one piece. */
void issue(ncclComm *comm)
{
    const std::vector<called> pending = std::move(comm->pending);
    const std::shared_ptr<member> m = comm->m;
    CUstream_st *stream = pending[0].stream;
    comm->pending.clear();
    if (stream->issued != comm->stream_issued) misuse("work was put on a stream while NCCL was still issuing to it");
    for (const called &one : pending) {
        party &own = one.appointed.at->party_of[static_cast<size_t>(one.appointed.rank)];
        own.issued = 1;
        own.at = stream->issued + 1;
    }
    m->under_way++;
    put_waiting(stream, [=] {
        int ended = 1;
        for (const called &one : pending)
            if (!m->aborted && !attend(one.appointed)) ended = 0;
        if (ended) m->under_way--;
        return ended;
    });
}

int all_called(const meeting &at)
{
    int count = 0;
    for (const party &one : at.party_of) count += one.called;
    return count == at.parties;
}

/* First exchanges connect, which takes all members. */
int connected(ncclComm *comm)
{
    for (const called &one : comm->pending)
        if (one.connects && !all_called(*one.appointed.at)) return 0;
    return 1;
}

int duplicate(const clique &c)
{
    for (const ncclComm *a : c.member)
        for (const ncclComm *b : c.member)
            if (a != b && a != nullptr && b != nullptr && a->device == b->device) return 1;
    return 0;
}

/* Does what is in progress come to its end? */
int comes_to_end(ncclComm *comm)
{
    if (comm->call == COMM_INIT) return comm->c->joined == comm->c->ranks;
    if (comm->call == COMM_GROUP) return connected(comm);
    if (comm->call == COMM_FINALIZE) return comm->c->finalized == comm->c->ranks && comm->m->under_way == 0;
    return 1;
}

/* Registers a call with its meeting. */
ncclResult_t appoint(const char *name, meeting_kind kind, const void *from, void *to, size_t count, ncclDataType_t type, int root, int peer,
                     ncclComm *comm, CUstream_st *stream)
{
    clique &c = *comm->c;
    const int ranks = c.ranks, key = kind != MEETING_MESSAGE ? 0 : from != nullptr ? comm->rank * ranks + peer : peer * ranks + comm->rank;
    std::shared_ptr<meeting> &at = kind != MEETING_MESSAGE ? c.collective[comm->collectives++]
                                                           : c.message[std::make_pair(key, comm->messages[key]++)];
    const size_t bytes = count * nccl_bytes(type), many = static_cast<size_t>(ranks);
    called one;
    NCCL_CHECK(comm->call == COMM_IDLE, "a communicator was used while a call was in progress");
    NCCL_CHECK(stream != nullptr && is_open(stream) && stream->device == comm->device, "NCCL: a stream of another device");
    NCCL_CHECK(stream->priority == -5, "NCCL: a stream of a group that does not go first");
    NCCL_CHECK(root >= 0 && root < ranks && peer >= 0 && peer < ranks, "NCCL: no such rank");
    NCCL_CHECK(from == nullptr || inside(gpu.memory, from, kind == MEETING_REDUCE_SCATTER ? many * bytes : bytes, comm->device),
               "NCCL: data is not in the device's memory");
    NCCL_CHECK(to == nullptr || inside(gpu.memory, to, kind == MEETING_ALL_GATHER ? many * bytes : bytes, comm->device),
               "NCCL: data goes to what is not the device's memory");
    NCCL_CHECK(group.empty() || (group[0].comm == comm && group[0].stream == stream), "NCCL: one communicator and stream a group are played here");
    if (at == nullptr) {
        at = std::make_shared<meeting>();
        *at = meeting{ kind, count, type, root, kind == MEETING_MESSAGE ? 2 : ranks, 0, 0, std::vector<party>(static_cast<size_t>(ranks)) };
    }
    NCCL_CHECK(at->kind == kind && at->count == count && at->type == type && at->root == root, name);
    at->party_of[static_cast<size_t>(comm->rank)] = party{ from, to, stream, 0, 1, 0, 0 };
    one.comm = comm;
    one.stream = stream;
    one.appointed = appointment{ at, comm->rank };
    one.connects = kind == MEETING_MESSAGE ? comm->connected[key]++ == 0 : comm->ring++ == 0;
    group.push_back(one);
    return ncclSuccess;
}

ncclResult_t end_group(void)
{
    ncclComm *comm;
    if (group.empty()) return ncclSuccess;
    comm = group[0].comm;
    comm->pending = std::move(group);
    group.clear();
    comm->call = COMM_GROUP;
    comm->polls = NCCL_POLLS;
    comm->stream_issued = comm->pending[0].stream->issued;
    return ncclInProgress;
}

ncclResult_t single(ncclResult_t result)
{
    if (result != ncclSuccess || group_depth > 0) return result;
    return end_group();
}

void forget(ncclComm *comm)
{
    comm->c->member[static_cast<size_t>(comm->rank)] = nullptr;
    delete comm;
    gpu.count.live--;
}

} /* namespace */

void standin_nccl_version(int version) { guard g(gpu.lock); net.version = version; }
void standin_nccl_error(int device, int code) { guard g(gpu.lock); net.error[device] = code; }

const char *ncclGetErrorString(ncclResult_t) { return "told by the stand-in"; }

ncclResult_t ncclGetVersion(int *version)
{
    guard g(gpu.lock);
    NCCL_CALL();
    *version = net.version != 0 ? net.version : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    guard g(gpu.lock);
    NCCL_CALL();
    memset(id, 0x5a, sizeof *id);
    net.ids++;
    memcpy(id->internal, &net.ids, sizeof net.ids);
    return ncclSuccess;
}

static int is_set(const char *variable, const char *value) { return getenv(variable) != nullptr && strcmp(getenv(variable), value) == 0; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    guard g(gpu.lock);
    uint64_t number;
    *comm = nullptr;
    NCCL_CALL();
    memcpy(&number, id.internal, sizeof number);
    NCCL_CHECK(number > 0 && number <= net.ids, "ncclCommInitRankConfig: no such id");
    NCCL_CHECK(is_set("CUDA_MODULE_LOADING", "EAGER") && is_set("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
               "NCCL: kernels are loaded late, or streams share queues");
    NCCL_CHECK(config != nullptr && config->size == sizeof *config && config->blocking == 0,
               "ncclCommInitRankConfig: only non-blocking communicators are played");
    std::shared_ptr<clique> &c = net.cliques[number];
    if (c == nullptr) {
        c = std::make_shared<clique>();
        c->ranks = ranks;
        c->member.resize(static_cast<size_t>(ranks));
    }
    NCCL_CHECK(c->ranks == ranks && rank >= 0 && rank < ranks && c->member[static_cast<size_t>(rank)] == nullptr,
               "ncclCommInitRankConfig: members disagree, or come twice");
    *comm = new ncclComm();
    (*comm)->c = c;
    (*comm)->m = std::make_shared<member>();
    (*comm)->rank = rank;
    (*comm)->device = current_device;
    (*comm)->call = COMM_INIT;
    (*comm)->polls = NCCL_POLLS;
    c->member[static_cast<size_t>(rank)] = *comm;
    c->joined++;
    gpu.count.live++;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    guard g(gpu.lock);
    NCCL_CALL();
    *error = static_cast<ncclResult_t>(net.error[comm->device]);
    if (*error != ncclSuccess) return ncclSuccess;
    if (comm->call == COMM_IDLE || comm->call == COMM_FINALIZED) return ncclSuccess;
    if (comm->polls > 0) comm->polls--;
    *error = ncclInProgress;
    if (comm->polls > 0 || !comes_to_end(comm)) return ncclSuccess;
    *error = ncclSuccess;
    if (comm->call == COMM_INIT && duplicate(*comm->c)) *error = ncclInvalidUsage;
    if (comm->call == COMM_GROUP) issue(comm);
    comm->call = comm->call == COMM_FINALIZE ? COMM_FINALIZED : COMM_IDLE;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    guard g(gpu.lock);
    NCCL_CALL();
    NCCL_CHECK(comm->call == COMM_IDLE, "ncclCommFinalize while a call was in progress");
    comm->c->finalized++;
    comm->call = COMM_FINALIZE;
    comm->polls = NCCL_POLLS;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    NCCL_CHECK(comm->call == COMM_FINALIZED, "ncclCommDestroy of a communicator that was not finalized");
    forget(comm);
    return fails ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    if (comm->call == COMM_GROUP) issue(comm); /* some of it may have been issued: all of it, for the worst */
    comm->m->aborted = 1;
    if (comm->call < COMM_FINALIZE) comm->c->finalized++;
    forget(comm);
    return fails ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    guard g(gpu.lock);
    NCCL_CALL();
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    guard g(gpu.lock);
    const int fails = told_to_fail(__func__);
    NCCL_CHECK(group_depth > 0, "ncclGroupEnd without ncclGroupStart");
    group_depth--;
    if (group_depth > 0) return ncclSuccess;
    if (fails || group_failed) { /* of a group with an error nothing runs */
        group.clear();
        group_failed = 0;
        return ncclInternalError;
    }
    return end_group();
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                        cudaStream_t stream)
{
    guard g(gpu.lock);
    NCCL_OP();
    NCCL_CHECK(op == ncclSum && type != ncclUint8, "ncclReduce: only sums of float, double and int64 are played");
    return single(appoint("ncclReduce: members disagree", MEETING_REDUCE, from, comm->rank == root ? to : nullptr, count, type, root, root, comm,
                          stream));
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    guard g(gpu.lock);
    NCCL_OP();
    return single(appoint("ncclBroadcast: members disagree", MEETING_BROADCAST, comm->rank == root ? from : nullptr, to, count, type, root, root,
                          comm, stream));
}

/* In place only: each member's part lies where it is of the whole. */
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    guard g(gpu.lock);
    NCCL_OP();
    NCCL_CHECK(op == ncclSum && type != ncclUint8, "ncclReduceScatter: only sums of float, double and int64 are played");
    NCCL_CHECK(to == static_cast<const char *>(from) + static_cast<size_t>(comm->rank) * count * nccl_bytes(type),
               "ncclReduceScatter: only in place");
    return single(appoint("ncclReduceScatter: members disagree", MEETING_REDUCE_SCATTER, from, to, count, type, 0, 0, comm, stream));
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
    guard g(gpu.lock);
    NCCL_OP();
    NCCL_CHECK(from == static_cast<char *>(to) + static_cast<size_t>(comm->rank) * count * nccl_bytes(type), "ncclAllGather: only in place");
    return single(appoint("ncclAllGather: members disagree", MEETING_ALL_GATHER, from, to, count, type, 0, 0, comm, stream));
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    guard g(gpu.lock);
    NCCL_OP();
    return single(appoint("ncclSend: the receiver expects something else", MEETING_MESSAGE, from, nullptr, count, type, comm->rank, peer, comm,
                          stream));
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    guard g(gpu.lock);
    NCCL_OP();
    return single(appoint("ncclRecv: the sender sends something else", MEETING_MESSAGE, nullptr, to, count, type, peer, peer, comm, stream));
}
