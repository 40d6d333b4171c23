// A tiny model trained through the executor, on any grid and on one rank, from data that is a function of global indices alone.
#pragma once
#include "base/error.hpp"
#include "base/random.hpp"
#include "compile/compile.hpp"
#include "cpu/device.hpp"
#include "ir/table.hpp"
#include "parameters.hpp"
#include "plan/costs.hpp"
#include "runtime/executor.hpp"
#include "variants.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace quadrille::test {

// GPT-2 or Llama at odd sizes: 5 layers' worth of corners in 2, a vocabulary that no tp divides.
inline Config tiny(bool llama) {
    Config c;
    c.model = {};
    c.model.num_layers = 4;
    c.model.hidden_size = 24;
    c.model.num_attention_heads = 4;
    c.model.num_key_value_heads = 4;
    c.model.head_dim = 6;
    c.model.ffn_hidden_size = 40;
    c.model.vocab_size = 37;
    c.model.seq_length = 16;
    c.train.global_batch_size = 8;
    c.train.micro_batch_size = 2;
    c.train.gradient_accumulation_steps = 4;
    c.train.clip_grad = 0.5;
    c.optimizer.lr = 1e-3;
    return llama ? as_llama(c, 2) : c;
}

// Grids of so many ranks that have each axis where it can be.
struct Axes { int dp, tp, pp, sp; };
inline std::vector<Axes> some_grids(int ranks) {
    switch (ranks) {
        case 2: return {{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}};
        case 4: return {{1, 2, 1, 2}, {2, 1, 2, 1}, {1, 4, 1, 1}};
        case 8: return {{1, 2, 2, 2}, {2, 2, 1, 2}};
        default: return {{1, 1, 1, 1}};
    }
}

// Counts every token but some, documents of 5 positions.
inline void load(const LoadRequest& r, std::int64_t step, std::int64_t rows, std::int64_t vocab) {
    std::size_t at = 0;
    for (const std::int64_t b : r.sequences)
        for (const std::int64_t s : r.positions) {
            const std::int64_t sample = step * 1000 + r.microbatch * rows + b;
            const auto token = [&](std::int64_t p) {
                const std::uint64_t bits = random_bits(random_key(7, sample), static_cast<std::uint64_t>(p));
                return static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(vocab));
            };
            if (r.input == Input::tokens) static_cast<std::int32_t*>(r.to)[at] = token(s);
            if (r.input == Input::targets) static_cast<std::int32_t*>(r.to)[at] = token(s + 1);
            if (r.input == Input::mask) static_cast<std::uint8_t*>(r.to)[at] = (sample + s) % 7 != 3;
            if (r.input == Input::document_start) static_cast<std::int32_t*>(r.to)[at] = static_cast<std::int32_t>(s / 5 * 5);
            ++at;
        }
}

struct Trained {
    std::vector<StepResult> steps;
    std::vector<std::vector<float>> parameters;  // on world rank 0
    std::vector<std::string> wire_axes;
    bool replicas_equal = true;
    TierPeak predicted;
    std::map<std::string, std::int64_t> wire;    // predicted bytes sent by this rank
};

// What a trainer runs on: the kernels that are asked for their workspace, and how one of these devices is made.
struct On {
    std::shared_ptr<const Kernels> kernels;
    std::function<std::unique_ptr<Device>()> make;
    static On cpu(int threads) {
        return {std::make_shared<CpuKernels>(threads), [threads] { return std::make_unique<CpuDevice>(threads); }};
    }
};

// A config of one rank may be run by a world of many: all do the same.
class Trainer {
  public:
    Trainer(World& world, const Config& config, int threads = 1, bool poison = false, bool through_host = false)
        : Trainer(world, config, On::cpu(threads), threads, poison, through_host) {}
    Trainer(World& world, const Config& config, const On& on, int threads, bool poison, bool through_host) : world_(world), config_(config) {
        EngineOptions engine;
        engine.compute_threads = threads;
        workspace_ = {device_workspace(on.kernels), Engine::staging_bytes(engine)};
        workspace_.through_host = through_host;
        compiled_ = compile(config, Purpose::training, workspace_);
        const Grid& grid = compiled_.tables->grid();
        at_ = grid.coordinate(world.rank());
        ExecutorOptions options;
        options.threads = threads;
        options.poison = poison;
        for (const Program& p : compiled_.programs)
            for (const std::string& name : wire_axes(p)) options.wire_axes.push_back(name);
        std::sort(options.wire_axes.begin(), options.wire_axes.end());
        options.wire_axes.erase(std::unique(options.wire_axes.begin(), options.wire_axes.end()), options.wire_axes.end());
        wire_axes_ = options.wire_axes;
        device_ = on.make();
        const std::array<std::int64_t, tier_count> bytes = {program().peaks[0].arena, program().peaks[1].arena, 0};
        arena_ = std::make_unique<Arena>(*device_, bytes, "the test", world.rank(), threads);
        const Tier messages = message_tier(program());
        const std::int64_t staging = program().staging[static_cast<std::size_t>(messages)];
        engine.staging = {arena_->data(messages) + arena_->size(messages) - staging, static_cast<std::size_t>(staging)};
        engine_ = std::make_unique<Engine>(world, engine);
        executor_ = std::make_unique<Executor>(program(), world, *engine_, *arena_, options);
        initialize(program(), at_, *arena_, 42, threads);
        options_ = options;
    }

    // What the planner says this rank sends.
    std::map<std::string, std::int64_t> wire() const { return wire_bytes(program(), at_); }
    const Program& program() const { return compiled_.programs[static_cast<std::size_t>(at_[Axis::pp])]; }
    Arena& arena() { return *arena_; }

    double loss_scale = 1024;  // of programs that scale the loss

    StepResult step(std::int64_t number, bool trace = false) { return run(inputs(number, trace)); }
    // As measured, a step takes the memory that was planned, book by book.
    StepResult run(const StepInputs& in) {
        const StepResult result = executor_->run(in);
        for (std::size_t t = 0; t < tier_count; ++t)
            require(result.memory[t].books == program().peaks[t].books, "measured memory is not the predicted");
        return result;
    }

    // The loss of a step's batch, by the evaluation program, which stands on the same arena.
    StepResult evaluate(std::int64_t number) {
        if (!evaluation_) {
            evaluation_programs_ = compile(config_, Purpose::evaluation, workspace_);
            const Program& here = evaluation_programs_->programs[static_cast<std::size_t>(at_[Axis::pp])];
            evaluation_ = std::make_unique<Executor>(here, world_, *engine_, *arena_, options_);
        }
        return evaluation_->run(inputs(number, false));
    }

    StepInputs inputs(std::int64_t number, bool trace) const {
        StepInputs in;
        in.step = in.update = number;
        in.seed = 11;
        in.lr = config_.optimizer.lr;
        in.loss_scale = loss_scale;
        in.weight_decay = config_.optimizer.weight_decay;
        in.trace = in.trace_memory = trace;
        in.load = [this, number](const LoadRequest& r) {
            load(r, number, config_.train.micro_batch_size * config_.grid.dp, config_.model.vocab_size);
        };
        return in;
    }

    std::vector<float> gather(int parameter, StateKind what) { return gather_parameter(program(), world_, *arena_, parameter, what); }

    Trained train(int steps) {
        Trained out;
        out.predicted = program().peaks[0];
        out.wire_axes = wire_axes_;
        out.wire = wire();
        for (int k = 0; k < steps; ++k) out.steps.push_back(step(k));
        for (std::size_t p = 0; p < program().parameters.size(); ++p) out.parameters.push_back(gather(static_cast<int>(p), StateKind::master));
        out.replicas_equal = replicas_equal(program(), world_, *arena_);
        return out;
    }

  private:
    World& world_;
    Config config_;
    Compiled compiled_;
    Coordinate at_;
    std::vector<std::string> wire_axes_;
    Workspace workspace_;
    std::unique_ptr<Device> device_;
    std::unique_ptr<Arena> arena_;
    std::unique_ptr<Engine> engine_;
    ExecutorOptions options_;
    std::optional<Compiled> evaluation_programs_;
    std::unique_ptr<Executor> executor_, evaluation_;
};

}  // namespace quadrille::test
