#include "train/trainer.hpp"

#include "comm/agree.hpp"
#include "comm/evidence.hpp"
#include "record/overlap_report.hpp"
#include "train/divergence.hpp"
#include "train/learning_rate.hpp"
#include "train/machine.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace quadrille {
namespace {

constexpr std::int64_t traced_steps = 10;
constexpr std::int64_t timed_memory_step = 2;  // whose memory is told over time: the first one pays for beginnings

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

// Every rank's rows of plain data, on rank 0; elsewhere nothing. Collective.
template <class Row>
std::vector<std::vector<Row>> gather_rows(World& world, const std::vector<Row>& rows) {
    static_assert(std::is_trivially_copyable_v<Row>);
    std::string bytes(rows.size() * sizeof(Row), '\0');
    if (!rows.empty()) std::memcpy(bytes.data(), rows.data(), bytes.size());
    std::vector<std::vector<Row>> all;
    for (std::string& b : world.gather(bytes)) {
        all.emplace_back(b.size() / sizeof(Row));
        if (!b.empty()) std::memcpy(all.back().data(), b.data(), b.size());
        b = std::string();  // gigabytes in a large job: not all of it twice
    }
    return all;
}

// A step's memory by tier and time on this rank's clock: a change happens when the next op of the compute queue begins, else at the end.
std::vector<TracedMemory> memory_over_time(const StepResult& r, std::int64_t rank) {
    std::vector<OpEvent> computed;
    double end = 0;
    for (const OpEvent& e : r.events) {
        if (e.queue == 0) computed.push_back(e);
        end = std::max(end, e.end);
    }
    std::vector<TracedMemory> rows;
    for (std::size_t t = 0; t < tier_count; ++t) {
        auto next = computed.begin();
        for (const BytesInUse& use : r.timeline[t]) {
            while (next != computed.end() && next->op < use.op) ++next;
            rows.push_back({rank, static_cast<std::int64_t>(t), use.op, next == computed.end() ? end : next->begin, use.books});
        }
    }
    return rows;
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

Trainer::Trainer(Session& session) : s_(session), console_(console_settings(session)), writer_(session.config.output.directory) {
    if (s_.config.train.precision == Precision::fp16) loss_scale_.emplace(s_.config.loss_scale);
    for (const std::string& w : s_.warnings) console_.warning(w);
    for (const std::string& n : s_.notes) console_.print(n);
    trace_.queues = {"compute"};
    for (const std::string& axis : s_.wire_axes) trace_.queues.push_back(axis);
    for (const Queue queue : tier_queues) trace_.queues.emplace_back(name_of(queue));
    for (const Program& p : s_.training.programs) {  // every rank names the ops of all coordinates alike
        first_label_.push_back(static_cast<std::int64_t>(trace_.ops.size()));
        if (!s_.config.output.trace) continue;
        for (const Op& op : p.ops) trace_.ops.push_back(label(p, op));
        trace_.ops.emplace_back("end");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The training loop
// ---------------------------------------------------------------------------------------------------------------------
Exit Trainer::run() {
    const Config& c = s_.config;
    // Without steps at first: from here on there is a record, whatever happens to the run.
    on_first_rank(s_.world, [&] { write_record(); return std::string(); });
    Loader loader(*s_.data.training, s_.sequences(), 0, c.train.steps, c.data.prefetch);
    s_.world.barrier();  // the first step begins on all ranks together
    double begin = now();
    for (std::int64_t k = 1; k <= c.train.steps; ++k) {
        const double wait = now();
        s_.world.evidence().doing(Doing::reads_data, k, wait);
        const StepBatch* loaded_batch = nullptr;
        together(s_.world, [&] { loaded_batch = &loader.next(); });  // a rank whose data is bad ends the job in order
        const StepBatch& batch = *loaded_batch;
        const double loaded = now();
        const double lr = learning_rate(c.optimizer, c.train.steps, k);
        StepResult r = train_step(k, batch, lr);
        if (k == 1) {
            note_memory(r);
            s_.record.wire_sent = s_.world.gather(std::span<const std::int64_t>(r.sent_bytes));
            s_.record.copies_moved = s_.world.gather(std::span<const std::int64_t>(r.moved_bytes));
        }
        if (c.output.trace && k <= traced_steps) keep_trace(r, k);
        const double end = now();
        at(r.time, Category::data) += loaded - wait;
        at(r.time, Category::other) += (end - begin) - (loaded - wait) - r.seconds;
        pending_.push_back({{k, r.loss, r.grad_norm, r.clip_factor, lr, scale(), r.tokens, end - begin, 0}, r.time, seconds_of_moves(r),
                            batch.batch.hash, r.residual2});
        begin = end;
        console_.step(pending_.back().row);
        if (diverged(r, k)) return Exit::diverged;
        if (k % c.output.log_interval == 0 || k == c.train.steps) flush();
        if (s_.evaluation && (k % c.evaluation.interval == 0 || k == c.train.steps)) {
            if (!evaluate(k)) return Exit::diverged;
            begin = now();
        }
    }
    s_.record.complete = true;
    return Exit::done;
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
    in.trace = c.output.trace && step <= traced_steps;
    in.trace_memory = c.output.trace && tells_memory(step);
    StepResult r = s_.train().run(in);
    r.loss = without_nan_sign(r.loss);
    r.grad_norm = without_nan_sign(r.grad_norm);
    updates_ += r.updated;
    stepped_ = true;
    return r;
}

bool Trainer::tells_memory(std::int64_t step) const { return step == std::min(timed_memory_step, s_.config.train.steps); }

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

// ---- evaluation: the mean loss over held-out data, forward only, outside of the steps ----
bool Trainer::evaluate(std::int64_t step) {
    const double begin = now();
    const SequenceBlock block = s_.sequences();
    const std::vector<std::int64_t> mine = block.indices();
    Batch batch;
    double loss = 0, tokens = 0;
    for (std::int64_t i = 0; i < s_.data.evaluation_batches; ++i) {
        s_.world.evidence().doing(Doing::reads_data, step, now());
        together(s_.world, [&] { s_.data.evaluation->read(i, mine, batch); });
        StepInputs in;
        in.step = step - 1;
        in.load = [&](const LoadRequest& r) { copy_input(batch, block, r); };
        const StepResult r = s_.evaluate().run(in);
        if (i == 0 && s_.record.evaluations.empty()) note_memory(r);
        loss += r.loss * static_cast<double>(r.tokens);
        tokens += static_cast<double>(r.tokens);
    }
    loss = tokens > 0 ? without_nan_sign(loss / tokens) : 0;
    s_.record.evaluations.push_back({step, loss, now() - begin});
    console_.print(fmt::format("evaluation after step {}: loss {:.4f} over {:.0f} tokens", step, loss, tokens));
    if (std::isfinite(loss) || s_.config.train.on_nan == OnNan::skip) return true;
    console_.error(fmt::format("evaluation after step {}: the loss is {}; stopping, as train.on_nan says", step, loss));
    return false;
}

// ---- the record ----
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

// Rank 0 gets everyone's times of the steps since the last flush, and writes the record when that is due.
void Trainer::flush() {
    const Coordinate& c = s_.coordinate;
    const bool counts = c[Axis::tp] == 0 && c[Axis::tq] == 0 && c[Axis::pp] == 0 && c[Axis::sp] == 0;
    for (Pending& p : pending_) {
        const std::vector<double> times = s_.world.gather(std::span<const double>(p.times));
        const std::vector<double> moves = s_.world.gather(std::span<const double>(p.moves));
        const std::int64_t hash = counts ? static_cast<std::int64_t>(p.hash) : 0;
        for (const std::int64_t h : s_.world.gather(std::span<const std::int64_t>(&hash, 1))) p.row.data_hash += static_cast<std::uint64_t>(h);
        double residual2 = 0;
        for (const double x : s_.world.gather(std::span<const double>(&p.residual2, 1))) residual2 += x;
        p.row.residual_norm = std::sqrt(residual2);
        if (s_.world.rank() == 0) s_.record.add_step(p.row, times, moves);
    }
    pending_.clear();
    on_first_rank(s_.world, [&] { if (writer_.due()) write_record(); return std::string(); });
}

void Trainer::keep_trace(const StepResult& r, std::int64_t step) {
    const auto shift = [this](std::int64_t rank) { return s_.world.clock_offset(static_cast<int>(rank)) - start_; };
    const auto first_label = [this](std::int64_t rank) { return first_label_[static_cast<std::size_t>(s_.grid.coordinate(rank)[Axis::pp])]; };
    for (const std::vector<OpEvent>& events : gather_rows(s_.world, r.events)) {
        const auto rank = static_cast<std::int64_t>(trace_.blocks.size()) % s_.world.size();
        TraceBlock block{step, rank, {}};
        for (const OpEvent& e : events) block.events.push_back({e.queue, first_label(rank) + e.op, e.begin + shift(rank), e.end + shift(rank)});
        trace_.blocks.push_back(std::move(block));
    }
    if (!tells_memory(step)) return;
    for (const std::vector<TracedMemory>& rows : gather_rows(s_.world, memory_over_time(r, s_.world.rank())))
        for (TracedMemory m : rows) {
            m.op += first_label(m.rank);
            m.time += shift(m.rank);
            trace_.memory.push_back(m);
        }
}

void Trainer::close(Exit exit) {
    flush();
    const std::int64_t peak = process_peak();
    s_.record.process_peak = s_.world.gather(std::span<const std::int64_t>(&peak, 1));
    s_.record.exit_code = static_cast<std::int64_t>(exit);
    on_first_rank(s_.world, [&] {
        write_record();
        if (s_.config.output.trace) write_trace(s_.config.output.directory, trace_);
        return std::string();
    });
    if (const std::string moves = s_.world.rank() == 0 ? overlap_line(s_.record) : ""; !moves.empty()) console_.print(moves);
    console_.print(fmt::format("record: {}", writer_.path().string()));
}

}  // namespace quadrille
