#include "train/trainer.hpp"

#include "comm/agree.hpp"
#include "comm/evidence.hpp"
#include "record/overlap_report.hpp"
#include "train/divergence.hpp"
#include "train/learning_rate.hpp"
#include "train/machine.hpp"
#include "train/same_data.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quadrille {
namespace {

// Copies this rank's part of a microbatch's input out of its rows of the step's batch.
void copy_input(const Batch& batch, const SequenceBlock& block, const LoadRequest& r) {
    const auto copy = [&](const auto& from, auto* to) {
        for (const std::int64_t sequence : r.sequences) {
            const std::int64_t row = r.microbatch * block.micro_batch + sequence - block.dp_rank * block.micro_batch;
            const auto* line = from.data() + row * batch.seq_length;
            for (const std::int64_t position : r.positions) *to++ = line[position];
        }
    };
    switch (r.input) {
        case Input::tokens: return copy(batch.tokens, static_cast<std::int32_t*>(r.to));
        case Input::targets: return copy(batch.targets, static_cast<std::int32_t*>(r.to));
        case Input::document_start: return copy(batch.document_start, static_cast<std::int32_t*>(r.to));
        case Input::mask: return copy(batch.mask, static_cast<std::uint8_t*>(r.to));
        case Input::positions: require(false, "train: positions are no input of the batch");
    }
}

// As the record takes them (RunRecord::add_step).
std::vector<double> seconds_of_moves(const StepResult& r) {
    std::vector<double> seconds;
    for (const WireSeconds& w : r.wire) seconds.push_back(w.busy);
    for (const WireSeconds& w : r.wire) seconds.push_back(w.exposed);
    seconds.insert(seconds.end(), {r.beside.seconds, r.beside.alone});
    return seconds;
}

// The sign of a NaN says nothing, but would be printed.
double without_nan_sign(double x) { return std::isnan(x) ? std::fabs(x) : x; }

ConsoleSettings console_settings(const Session& s) {
    ConsoleSettings c;
    c.speaks = s.world.rank() == 0;
    c.total_steps = s.config.train.steps;
    c.log_interval = s.config.output.log_interval;
    c.model_flops = s.record.model_flops;
    c.loss_scale = s.config.train.precision == Precision::fp16;
    return c;
}

}  // namespace

Trainer::Trainer(Session& session, double begun)
    : s_(session), console_(console_settings(session)), writer_(session.config.output.directory, session.record_place.name), tracing_(session),
      saves_(session, console_), stop_(session.world, begun, session.config.train.time_limit), first_(session.start.point.step),
      stepped_(session.start.point.follows_a_step), updates_(session.start.point.updates) {
    const TrainingPoint& from = s_.start.point;
    if (s_.config.train.precision == Precision::fp16) loss_scale_.emplace(s_.config.loss_scale, from.loss_scale, from.good_steps);
    for (const std::string& w : s_.warnings) console_.warning(w);
    for (const std::string& n : s_.notes) console_.print(n);
    // Rank 0's record knows, where the run goes on with one.
    evaluated_ = s_.world.max(s_.record.evaluations.empty() ? 0 : s_.record.evaluations.back().step);
}

// ---------------------------------------------------------------------------------------------------------------------
// The training loop
// ---------------------------------------------------------------------------------------------------------------------
Exit Trainer::run() {
    const Config& c = s_.config;
    // Without new steps at first: from here on there is a record, whatever happens to the run.
    on_first_rank(s_.world, [&] { write_record(); return std::string(); });
    Loader loader(*s_.data.training, s_.sequences(), first_, c.train.steps, c.data.prefetch);
    s_.world.barrier();  // the first step begins on all ranks together
    stop_.ask(needed(1));  // a signal may have come while the run was set up
    require_time();
    if (const auto end = between_steps(first_)) return *end;
    for (std::int64_t k = first_ + 1; k <= c.train.steps; ++k) {
        if (!step(k, loader)) return Exit::diverged;
        if (const auto end = between_steps(k)) return *end;
    }
    s_.record.complete = true;
    return Exit::done;
}

// The time may have gone since the session looked: never stopped, as if it were to be queued again, without a signal or a step.
void Trainer::require_time() {
    const auto& why = stop_.reason();
    if (!why || why->kind == StopReason::Kind::signal || first_ == s_.config.train.steps) return;
    const double left = stop_.seconds_left();
    on_first_rank(s_.world, [&]() -> std::string { throw no_time(s_.config.train.time_limit, left, saves_.seconds_needed(left)); });
}

bool Trainer::step(std::int64_t k, Loader& loader) {
    const Config& c = s_.config;
    const double wait = now();
    s_.world.evidence().doing(Doing::reads_data, k, wait);
    const StepBatch* batch = nullptr;
    together(s_.world, [&] { batch = &loader.next(); });  // a rank whose data is bad ends the job in order
    const double loaded = now();
    const double lr = learning_rate(c.optimizer, c.train.steps, k);
    stop_.begin(needed(2));
    StepResult r = train_step(k, *batch, lr);
    stop_.end();
    if (k == first_ + 1) note_first_step(r);
    if (tracing_.has(k)) tracing_.keep(r, k);
    const double end = now();
    at(r.time, Category::data) += loaded - wait;
    at(r.time, Category::other) += (end - begin_) - (loaded - wait) - r.seconds;
    pending_.push_back({{k, r.loss, r.grad_norm, r.clip_factor, lr, scale(), r.tokens, end - begin_, 0}, r.time, seconds_of_moves(r),
                        batch->batch.hash, r.residual2});
    slowest_ = std::max(slowest_, end - begin_);
    begin_ = end;
    console_.step(pending_.back().row);
    if (diverged(r, k)) return false;
    if (k % c.output.log_interval == 0 || k == c.train.steps) flush(false);
    if (k == first_ + 1) stop_.ask(needed(1));  // how long a step takes is known only now
    return true;
}

std::optional<Exit> Trainer::between_steps(std::int64_t k) {
    if (saves_.due(k)) save(k, k == s_.config.train.steps);
    if (evaluates(k) && !stop_.reason() && !evaluate(k)) return Exit::diverged;
    if (stop_.reason() && (k < s_.config.train.steps || evaluates(k))) return stop(k);
    begin_ = now();
    return {};
}

StepResult Trainer::train_step(std::int64_t step, const StepBatch& batch, double lr) {
    const Config& c = s_.config;
    const SequenceBlock block = s_.sequences();
    StepInputs in;
    in.step = step - 1;
    in.update = updates_;
    in.follows_a_step = stepped_;
    in.seed = c.train.seed;
    in.loss_scale = scale();
    in.lr = lr;
    in.beta1 = c.optimizer.beta1;
    in.beta2 = c.optimizer.beta2;
    in.eps = c.optimizer.eps;
    in.weight_decay = c.optimizer.weight_decay;
    in.load = [&](const LoadRequest& r) { copy_input(batch.batch, block, r); };
    in.trace = tracing_.has(step);
    in.trace_memory = tracing_.has_memory(step);
    StepResult r = s_.train().run(in);
    r.loss = without_nan_sign(r.loss);
    r.grad_norm = without_nan_sign(r.grad_norm);
    updates_ += r.updated;
    stepped_ = true;
    return r;
}

// Loss and norm are the same on every rank, so all decide alike.
bool Trainer::diverged(const StepResult& r, std::int64_t step) {
    if (r.tokens == 0 && !warned_of_no_tokens_) {
        warned_of_no_tokens_ = true;
        console_.warning(fmt::format("step {}: no token of the global batch is counted, so its loss and gradient are 0; "
                                     "see data.mask_across_documents", step));
    }
    if (std::isfinite(r.loss) && std::isfinite(r.grad_norm)) {
        if (loss_scale_) loss_scale_->finite();
        return false;
    }
    if (loss_scale_ && std::isfinite(r.loss)) return overflowed(step);
    const bool goes_on = s_.config.train.on_nan == OnNan::skip;
    const std::string what = fmt::format("step {}: {}{}", step, not_finite(r, s_.config.comm.staleness > 0),
                                         goes_on ? "" : "; stopping, as train.on_nan says");
    if (goes_on) console_.warning(what);
    else console_.error(what);
    return !goes_on;
}

// A scale too large explains it, whatever train.on_nan says of what nothing explains; a loss that is not finite it does not explain, for the
// forward pass is not scaled.
bool Trainer::overflowed(std::int64_t step) {
    const double was = scale();
    if (loss_scale_->overflowed()) {
        console_.print(fmt::format("step {}: gradients overflowed at loss scale {}; the update is skipped, the loss scale is now {}", step, was,
                                   scale()));
        return false;
    }
    console_.error(fmt::format("step {}: gradients overflow at loss scale {}, and loss_scale.minimum {} lets it fall no further; stopping. "
                               "Weights are those of the step before", step, was, s_.config.loss_scale.minimum));
    return true;
}

// ---- checkpoints and stops ----
TrainingPoint Trainer::point(std::int64_t step) const {
    TrainingPoint p;
    p.step = step;
    p.updates = updates_;
    p.sequences = s_.data.training->read_before(step);
    p.seed = s_.config.train.seed;
    p.loss_scale = scale();
    p.follows_a_step = stepped_ && s_.config.comm.staleness > 0;
    p.good_steps = loss_scale_ ? loss_scale_->good_steps() : 0;
    p.config_yaml = s_.record.config_yaml;
    return p;
}

// The record first, so that it tells of every step that a checkpoint holds. A signal that comes meanwhile stops the run at this step.
void Trainer::save(std::int64_t step, bool must) {
    flush(true);
    const double begin = now();
    saves_.save(point(step), must);
    const double seconds = now() - begin;
    const std::vector<double> all = s_.world.gather(std::span<const double>(&seconds, 1));
    if (s_.world.rank() == 0) s_.record.add_to_last_step(static_cast<std::size_t>(Category::checkpoint), all);
    stop_.ask(needed(1));
}

Exit Trainer::stop(std::int64_t step) {
    const StopReason why = *stop_.reason();
    if (saves_.newest() != step) save(step, true);
    saves_.finish();
    console_.error(fmt::format("stopped after step {} of {}, because of {}; checkpoint.resume={} goes on from there", step, s_.config.train.steps,
                               text(why, s_.config.train.time_limit), s_.config.checkpoint.directory));
    return Exit::stopped;
}

// ---- evaluation: the mean loss over held-out data, forward only, outside of the steps ----
// Due at its interval and after the last step; one that a stop has cut off is made up for by the run that goes on.
bool Trainer::evaluates(std::int64_t step) const {
    return s_.evaluation && step > 0 && step != evaluated_ && (step % s_.config.evaluation.interval == 0 || step == s_.config.train.steps);
}

bool Trainer::evaluate(std::int64_t step) {
    const double begin = now();
    const SequenceBlock block = s_.sequences();
    const std::vector<std::int64_t> mine = block.indices();
    Batch batch;
    double loss = 0, tokens = 0;
    for (std::int64_t i = 0; i < s_.data.evaluation_batches; ++i) {
        if (stop_.reason()) return true;
        const double begun = now();
        s_.world.evidence().doing(Doing::reads_data, step, begun);
        together(s_.world, [&] { s_.data.evaluation->read(i, mine, batch); });
        StepInputs in;
        in.step = step - 1;
        in.load = [&](const LoadRequest& r) { copy_input(batch, block, r); };
        stop_.begin(needed(2));
        const StepResult r = s_.evaluate().run(in);
        stop_.end();
        if (i == 0) note_memory(r);
        loss += r.loss * static_cast<double>(r.tokens);
        tokens += static_cast<double>(r.tokens);
        slowest_ = std::max(slowest_, now() - begun);
    }
    return tell_evaluation(step, loss, tokens, now() - begin);
}

bool Trainer::tell_evaluation(std::int64_t step, double sum, double tokens, double seconds) {
    const double loss = tokens > 0 ? without_nan_sign(sum / tokens) : 0;
    evaluated_ = step;
    s_.record.evaluations.push_back({step, loss, seconds});
    console_.print(fmt::format("evaluation after step {}: loss {:.4f} over {:.0f} tokens", step, loss, tokens));
    if (std::isfinite(loss) || s_.config.train.on_nan == OnNan::skip) return true;
    console_.error(fmt::format("evaluation after step {}: the loss is {}; stopping, as train.on_nan says", step, loss));
    return false;
}

// ---- the record ----
void Trainer::note_first_step(const StepResult& r) {
    note_memory(r);
    s_.record.wire_sent = s_.world.gather(std::span<const std::int64_t>(r.sent_bytes));
    s_.record.copies_moved = s_.world.gather(std::span<const std::int64_t>(r.moved_bytes));
}

void Trainer::note_memory(const StepResult& r) {
    for (std::size_t t = 0; t < tier_count; ++t)
        if (r.memory[t].bytes > measured_[t].bytes) measured_[t] = r.memory[t];
    std::vector<std::int64_t> books;
    for (const BytesInUse& p : measured_) books.insert(books.end(), p.books.begin(), p.books.end());
    s_.record.measured_peak = s_.world.gather(std::span<const std::int64_t>(books));
}

void Trainer::write_record() {
    s_.world.evidence().doing(Doing::writes_record, 0, now());
    writer_.write(s_.record);
    s_.world.evidence().doing(Doing::other, 0, now());
}

// Rank 0 gets everyone's times of the steps since the last flush, and writes the record when that is due, or must be.
void Trainer::flush(bool must_write) {
    std::string different;
    for (Pending& p : pending_) {
        const std::vector<double> times = s_.world.gather(std::span<const double>(p.times));
        const std::vector<double> moves = s_.world.gather(std::span<const double>(p.moves));
        const auto hash = static_cast<std::int64_t>(p.hash);
        const std::vector<std::int64_t> hashes = s_.world.gather(std::span<const std::int64_t>(&hash, 1));
        const std::vector<double> residuals2 = s_.world.gather(std::span<const double>(&p.residual2, 1));
        if (s_.world.rank() != 0) continue;
        p.row.data_hash = hash_of_batch(s_.grid, hashes);
        p.row.residual_norm = std::sqrt(std::accumulate(residuals2.begin(), residuals2.end(), 0.0));
        s_.record.add_step(p.row, times, moves);
        if (different.empty()) different = different_sequences(s_.grid, p.row.step, hashes);
    }
    pending_.clear();
    saves_.look();
    on_first_rank(s_.world, [&] {
        if (!different.empty()) throw Error(Exit::io_failed, different);
        if (must_write || writer_.due()) write_record();
        return std::string();
    });
}

void Trainer::close(Exit exit) {
    try {
        saves_.finish();  // whatever has ended the run: a save behind training is told of, or why it failed
    } catch (const SharedError& e) {
        console_.error(e.what());
    }
    flush(false);
    const std::int64_t peak = process_peak();
    s_.record.process_peak = s_.world.gather(std::span<const std::int64_t>(&peak, 1));
    s_.record.exit_code = static_cast<std::int64_t>(exit);
    on_first_rank(s_.world, [&] {
        write_record();
        tracing_.write();
        return std::string();
    });
    const bool has_stepped = !s_.record.steps.empty() && s_.record.steps.back().step > first_;  // else they are a former run's; rank 0's
    if (const std::string moves = has_stepped ? overlap_line(s_.record) : ""; !moves.empty()) console_.print(moves);
    console_.print(fmt::format("record: {}", writer_.path().string()));
}

}  // namespace quadrille
