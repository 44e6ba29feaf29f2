/* What the suites of the CUDA device share: runs on the stand-in or on real cards, and what they leave behind compared. Included once, after
   hetrain_cuda.cu and support.h. */
#ifndef CUDA_TRAINING_H
#define CUDA_TRAINING_H

/* What a run leaves behind: the loss of each step and all parameters, their gradients and moments. */
struct trained {
    std::vector<double> loss, norm;
    std::vector<std::vector<float>> weight, gradient, moment;
    std::vector<std::string> name;
};

static void read_all(het_ctx *ctx, het_array what, std::vector<std::vector<float>> *to, std::vector<std::string> *name)
{
    for (int64_t p = 0; p < het_parameter_count(ctx); p++) {
        het_parameter_info info;
        EXPECT_OK(het_parameter_get_info(ctx, p, &info));
        std::vector<float> values(static_cast<size_t>(info.count));
        if (info.frozen && what != HET_WEIGHT) continue;
        EXPECT_ERROR(het_parameter_read(ctx, p, what, values.data()), HET_OK, het_last_error(ctx), "");
        to->push_back(values);
        if (name != nullptr) name->push_back(info.name);
    }
}

static trained train(const support_run *run, const char *layout)
{
    trained t;
    het_ctx *ctx = support_create(&run->desc);
    for (int step = 0; step < run->data.steps; step++) {
        const het_step_info info = support_step(ctx, &run->data, step, layout);
        t.loss.push_back(info.loss);
        t.norm.push_back(info.gradient_norm);
    }
    read_all(ctx, HET_WEIGHT, &t.weight, &t.name);
    read_all(ctx, HET_GRADIENT, &t.gradient, nullptr);
    read_all(ctx, HET_MOMENT0, &t.moment, nullptr);
    het_destroy(ctx);
    return t;
}

static double largest_of(const std::vector<std::vector<float>> &all)
{
    double largest = 0.0;
    for (const std::vector<float> &one : all)
        for (const float x : one) largest = fmax(largest, fabs(static_cast<double>(x)));
    return largest;
}

/* The largest difference, as a share of the largest value, or of `floor`: some gradients are 0 but for rounding (the bias of keys). What is no number
   stays none. */
static double difference(const std::vector<float> &a, const std::vector<float> &b, double floor)
{
    double most = 0.0, largest = floor;
    assert_int_equal(a.size(), b.size());
    for (size_t i = 0; i < a.size(); i++) {
        const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
        if (most <= HUGE_VAL && !(fabs(x - y) <= most)) most = fabs(x - y);
        if (fabs(x) > largest) largest = fabs(x);
    }
    return most / largest;
}

static void expect_close(const char *what, const std::vector<std::string> &name, const std::vector<std::vector<float>> &a,
                         const std::vector<std::vector<float>> &b, double limit, double *worst)
{
    for (size_t p = 0; p < a.size(); p++) {
        const double d = difference(a[p], b[p], 1e-3 * largest_of(a));
        if (!(d <= *worst)) *worst = d;
        if (!(d <= limit)) fail_msg("%s of %s differs by %g of its largest value; %g is allowed", what, name[p].c_str(), d, limit);
    }
}

/* Shares of a tensor's largest value. f32: rounding of sums in another order. bf16: operands and values inside units keep 8 bits
   where the CPU has floats, and a gradient, a sum of many terms that cancel, is off by a few 2^-9. */
static void expect_same(const trained &cpu, const trained &cuda, double limit, const char *what)
{
    double loss = 0.0, gradient = 0.0, weight = 0.0;
    for (size_t i = 0; i < cpu.loss.size(); i++) {
        const double d = fabs(cpu.loss[i] - cuda.loss[i]) / fabs(cpu.loss[i]);
        if (!(d <= loss)) loss = d;
        if (!(d <= limit)) fail_msg("%s: loss of step %d is %.9g, not %.9g", what, static_cast<int>(i), cuda.loss[i], cpu.loss[i]);
    }
    expect_close("gradient", cpu.name, cpu.gradient, cuda.gradient, limit, &gradient);
    expect_close("weight", cpu.name, cpu.weight, cuda.weight, limit, &weight);
    print_message("%s: loss %.1e, gradients %.1e, weights %.1e\n", what, loss, gradient, weight);
}

static void expect_equal(const trained &a, const trained &b)
{
    assert_true(a.loss == b.loss && a.norm == b.norm && a.weight == b.weight && a.gradient == b.gradient && a.moment == b.moment);
}

#ifndef HETC_EMULATED
static void stand_in(int devices) { (void)devices; }
static void stand_down(void) {}
static int cards(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
#else
static int cards(void) { return 4; }

static void stand_in(int devices)
{
    const standin_count count = standin_counted();
    assert_int_equal(count.live, 0);
    standin_reset(devices);
}

/* Everything has been given back, and no call was wrong. */
static void stand_down(void)
{
    const standin_count count = standin_counted();
    if (count.misuse != 0) fail_msg("%d wrong calls, the first: %s", static_cast<int>(count.misuse), count.misused);
    assert_int_equal(count.live, 0);
    if (emulator_error()[0] != 0) fail_msg("a kernel: %s", emulator_error());
}
#endif

#define BLOCKS "17|5,0,9|24|1"
#define LAYOUT "01|23"

static void start_layers(support_run *run, het_family family, het_dtype dtype, het_reduce reduce, int64_t layers)
{
    het_model_desc model = support_model(family);
    model.layers = layers;
    support_run_start(run, &model, 3, BLOCKS);
    run->desc.dtype = dtype;
    run->desc.reduce = reduce;
    run->desc.optimizer.clip = 0.5f;
    run->desc.optimizer.weight_decay = 0.1f;
    run->desc.optimizer.epsilon = 1e-3f; /* at the usual 1e-8 the sign of a gradient that is 0 but for rounding would decide */
    support_run_ranks(run, 1);
}

static inline void start(support_run *run, het_family family, het_dtype dtype, het_reduce reduce)
{
    start_layers(run, family, dtype, reduce, 2);
}

static double limit_of(het_dtype dtype) { return dtype == HET_BF16 ? 3e-2 : 1e-5; }

#endif
