// Training inside a C++ program: RAII around the context, data and packed batches in std::vector, errors as exceptions.
//   g++ -std=c++11 -O2 -I. examples/embed.cpp -lpthread
// The task: given a list of digits and "=", answer with its largest digit: "3 1 4 1 =" -> "4".
#define HETRAIN_IMPLEMENTATION
#include "hetrain.h"

#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

class Trainer {
public:
    explicit Trainer(const het_desc &desc) {
        het_ctx *raw = nullptr;
        het_error error;
        if (het_create(&desc, &raw, &error) != HET_OK) throw std::runtime_error(error.text);
        ctx_.reset(raw);
    }
    het_step_info step(const std::vector<het_batch> &batches) {
        het_step_info info;
        check(het_step(ctx_.get(), batches.data(), static_cast<int64_t>(batches.size()), &info));
        return info;
    }
    std::vector<float> logits(const std::vector<int32_t> &tokens) {
        std::vector<float> result(static_cast<size_t>(het_get_desc(ctx_.get())->model.vocab));
        check(het_infer(ctx_.get(), tokens.data(), static_cast<int64_t>(tokens.size()), 0, result.data()));
        return result;
    }

private:
    struct Destroy { void operator()(het_ctx *ctx) const { het_destroy(ctx); } };
    void check(het_result result) { if (result != HET_OK) throw std::runtime_error(het_last_error(ctx_.get())); }
    std::unique_ptr<het_ctx, Destroy> ctx_;
};

// Sequences of unequal length behind each other; only the answer is a target.
class Batch {
public:
    void add(const std::vector<int32_t> &digits, int32_t answer) {
        token_.insert(token_.end(), digits.begin(), digits.end());
        token_.push_back(equals);
        target_.resize(token_.size(), -1);
        target_.back() = answer;
        start_.push_back(static_cast<int64_t>(token_.size()));
    }
    het_batch view() const {
        het_batch batch = het_batch();
        batch.tokens = static_cast<int64_t>(token_.size());
        batch.sequences = static_cast<int64_t>(start_.size()) - 1;
        batch.token = token_.data();
        batch.target = target_.data();
        batch.sequence_start = start_.data();
        return batch;
    }
    enum : int32_t { equals = 10 };

private:
    std::vector<int32_t> token_, target_;
    std::vector<int64_t> start_ = std::vector<int64_t>(1, 0);
};

static std::vector<int32_t> random_digits(std::mt19937 &random) {
    std::vector<int32_t> digits(1 + random() % 12);
    for (int32_t &digit : digits) digit = static_cast<int32_t>(random() % 10);
    return digits;
}

static int32_t largest(const std::vector<int32_t> &digits) {
    int32_t best = 0;
    for (int32_t digit : digits) best = digit > best ? digit : best;
    return best;
}

int main() {
    try {
        het_desc desc = het_desc(); // zero: all defaults
        desc.model.layers = 2;
        desc.model.width = 64;
        desc.model.vocab = 11;
        desc.model.context = 16;
        desc.limits.max_tokens = 1024;
        desc.optimizer.learning_rate = 3e-3f;
        desc.optimizer.total_steps = 200;
        Trainer trainer(desc);
        std::mt19937 random(1);
        for (int step = 0; step < 200; step++) {
            Batch batch;
            for (int i = 0; i < 64; i++) {
                const std::vector<int32_t> digits = random_digits(random);
                batch.add(digits, largest(digits));
            }
            const het_step_info info = trainer.step(std::vector<het_batch>(1, batch.view()));
            if (step % 40 == 0 || step == 199) std::printf("step %3d  loss %.4f\n", step + 1, info.loss);
        }
        int right = 0;
        for (int i = 0; i < 200; i++) {
            std::vector<int32_t> digits = random_digits(random);
            const int32_t answer = largest(digits);
            digits.push_back(Batch::equals);
            const std::vector<float> logits = trainer.logits(digits);
            int32_t best = 0;
            for (int32_t t = 1; t < 11; t++) best = logits[static_cast<size_t>(t)] > logits[static_cast<size_t>(best)] ? t : best;
            right += best == answer;
        }
        std::printf("%d of 200 new lists right\n", right);
        return right > 150 ? 0 : 1;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
