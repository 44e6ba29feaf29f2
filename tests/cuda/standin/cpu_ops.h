/* Ops of the CUDA device that the CPU device does, late, on the stand-in's streams: to test the device's host side apart from its kernels. */
#include <memory>
#include <vector>

#define HETC_TRY(call) do { const het_result hetc_tried = (call); if (hetc_tried != HET_OK) return hetc_tried; } while (0)

static cudaStream_t hetc_stream(void *self, het_queue *queue);
static het_result hetc_fail(void *self, cudaError_t code, const char *what, const char *file, int line);

/* Copies of what args point to on the host, and workspace for the CPU. */
struct cpu_op {
    het_view view;
    std::vector<int64_t> sequence_start, granule_start;
    std::vector<het_gradient> gradient;
    std::vector<char> workspace;
    void *device;
    cpu_op() { gradient.reserve(4); device = nullptr; }
    void open()
    {
        static const het_allocator allocator = { [](void *, size_t size, size_t) { return malloc(size); },
                                                 [](void *, void *pointer, size_t) { free(pointer); }, nullptr };
        static const het_parallel parallel = { nullptr, nullptr };
        het_device_config config;
        memset(&config, 0, sizeof config);
        config.allocator = &allocator;
        config.parallel = &parallel;
        config.threads = 1;
        config.isa = HET_ISA_PLAIN;
        if (het_cpu_device()->create(&config, &device) != HET_OK) abort();
    }
    void close() { het_cpu_device()->destroy(device); }
    void keep(const het_view **v)
    {
        if (*v == nullptr) return;
        view = **v;
        sequence_start.assign(view.host_sequence_start, view.host_sequence_start + view.sequences + 1);
        granule_start.assign(view.host_granule_start, view.host_granule_start + view.granules + 1);
        view.host_sequence_start = view.sequence_start = sequence_start.data();
        view.host_granule_start = view.granule_start = granule_start.data();
        *v = &view;
    }
    void keep(const het_gradient **g)
    {
        if (*g == nullptr) return;
        gradient.push_back(**g);
        *g = &gradient.back();
    }
    void room(het_op op, const void *args)
    {
        open();
        workspace.resize(het_cpu_device()->workspace_bytes(device, op, args) + 64);
        close();
    }
    void *space() { return reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64); }
};

template <class Args, class Keep> static het_result cpu_op_run(void *self, het_queue *queue, const Args *a,
                                                               het_result (*op)(void *, het_queue *, const Args *), Keep keep)
{
    auto state = std::make_shared<cpu_op>();
    auto args = std::make_shared<Args>(*a);
    keep(*state, *args);
    standin_enqueue(hetc_stream(self, queue), [=] {
        state->open();
        if (op(state->device, nullptr, args.get()) != HET_OK) abort();
        state->close();
    });
    const cudaError_t code = cudaGetLastError();
    return code == cudaSuccess ? HET_OK : hetc_fail(self, code, "launch", __FILE__, __LINE__);
}

#define CPU_OP(name, type, ...) static het_result hetc_##name(void *self, het_queue *queue, const type *a) \
{ return cpu_op_run<type>(self, queue, a, het_cpu_device()->name, [](cpu_op &s, type &x) { (void)s; (void)x; __VA_ARGS__ }); }
#define WORK(op) s.room(op, &x); x.workspace = s.space();

CPU_OP(norm_forward, het_norm_args, s.keep(&x.view); WORK(HET_OP_NORM_FORWARD))
CPU_OP(norm_backward_input, het_norm_args, s.keep(&x.view); WORK(HET_OP_NORM_BACKWARD_INPUT))
CPU_OP(norm_backward_weight, het_norm_args, s.keep(&x.view); s.keep(&x.dgain); s.keep(&x.dbias); WORK(HET_OP_NORM_BACKWARD_WEIGHT))
CPU_OP(rotary_forward, het_rotary_args, s.keep(&x.view);)
CPU_OP(rotary_backward, het_rotary_args, s.keep(&x.view);)
CPU_OP(attention_forward, het_attention_args, s.keep(&x.view); WORK(HET_OP_ATTENTION_FORWARD) x.workspace_size = s.workspace.size() - 64;)
CPU_OP(attention_backward, het_attention_args, s.keep(&x.view); WORK(HET_OP_ATTENTION_BACKWARD) x.workspace_size = s.workspace.size() - 64;)
CPU_OP(activation_forward, het_activation_args, {})
CPU_OP(activation_backward, het_activation_args, {})
CPU_OP(embedding_forward, het_embedding_args, s.keep(&x.view);)
CPU_OP(embedding_backward_weight, het_embedding_args, s.keep(&x.view); s.keep(&x.dtable); s.keep(&x.dpositions); WORK(HET_OP_EMBEDDING_BACKWARD_WEIGHT))
CPU_OP(dropout_forward, het_dropout_args, s.keep(&x.view);)
CPU_OP(dropout_backward, het_dropout_args, s.keep(&x.view);)
CPU_OP(cross_entropy, het_cross_entropy_args, WORK(HET_OP_CROSS_ENTROPY))
CPU_OP(accumulate, het_accumulate_args, s.keep(&x.gradient);)
CPU_OP(sum_squares, het_sum_squares_args, s.keep(&x.gradient); WORK(HET_OP_SUM_SQUARES))
CPU_OP(verdict, het_verdict_args, {})
CPU_OP(adamw, het_adamw_args, s.keep(&x.gradient);)

static het_result cpu_op_launch(void *self, het_queue *queue, std::function<void()> work)
{
    standin_enqueue(hetc_stream(self, queue), work);
    const cudaError_t code = cudaGetLastError();
    return code == cudaSuccess ? HET_OK : hetc_fail(self, code, "launch", __FILE__, __LINE__);
}

static het_result hetc_add(void *self, het_queue *queue, float *y, const float *x, int64_t count)
{
    return cpu_op_launch(self, queue, [=] { for (int64_t i = 0; i < count; i++) y[i] += x[i]; });
}

static size_t hetc_rows_workspace(het_op, const void *) { return 64; }

/* To nearest even, subnormals to 0, columns [columns, pitch) to 0. */
static het_result hetc_round_rows(void *self, het_queue *queue, void *to, const float *from, int64_t rows, int64_t columns, int64_t pitch)
{
    return cpu_op_launch(self, queue, [=] {
        for (int64_t i = 0; i < rows * pitch; i++) {
            float value = i % pitch < columns ? from[i / pitch * columns + i % pitch] : 0.0f;
            uint32_t bits;
            memcpy(&bits, &value, 4);
            if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
            static_cast<uint16_t *>(to)[i] = static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
        }
    });
}

static size_t hetc_column_sums_workspace(int64_t, int64_t) { return 64; }
static het_result hetc_column_sums(void *self, het_queue *queue, const float *from, int64_t rows, int64_t columns, float *to, void *)
{
    return cpu_op_launch(self, queue, [=] {
        for (int64_t c = 0; c < columns; c++) {
            float sum = 0.0f;
            for (int64_t r = 0; r < rows; r++) sum += from[r * columns + c];
            to[c] = sum;
        }
    });
}
