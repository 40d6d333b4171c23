#include "checkpoint/saver.hpp"

#include "base/error.hpp"
#include "checkpoint/checksums.hpp"
#include "checkpoint/in_order.hpp"
#include "checkpoint/removal.hpp"
#include "checkpoint/steps.hpp"
#include "checkpoint/stored_file.hpp"
#include "checkpoint/transfer.hpp"
#include "comm/world.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

std::vector<StoredTensor> stored_of(const std::vector<StateTensor>& tensors) {
    std::vector<StoredTensor> stored;
    for (const StateTensor& t : tensors) stored.push_back(t.stored);
    return stored;
}

// Of a run of this rank what does not go straight to the disk.
Pieces ends(const StoredTensor& tensor, const Pieces& run) {
    if (run.empty()) return {};
    const Extent all{run.front().element, total(run)}, whole = whole_blocks(tensor, all);
    if (whole.count == 0) return run;
    Pieces pieces = portion(run, 0, whole.offset - all.offset);
    const std::int64_t behind = whole.offset - all.offset + whole.count;
    for (const Piece& p : portion(run, behind, all.count - behind)) pieces.push_back(p);
    return pieces;
}

// Where a save takes the values from, what they pass through where they do not lie ready, and how many a rank moves at once.
struct Source {
    bool is_snapshot = false;
    const Passage& passage;
    std::int64_t most = 0;
};

// Where the values of each piece of a part of a tensor lie: in the snapshot, whose passage has no room for a round's; else one after the other, where
// they lie so or in the passage.
std::vector<const float*> places_of(const Pieces& part, Arena& arena, const Source& from, std::int64_t before) {
    std::vector<const float*> places;
    const float* next = from.is_snapshot ? nullptr : gathered(part, arena, from.passage, before);
    for (const Piece& p : part) {
        if (from.is_snapshot) next = reinterpret_cast<const float*>(p.data);
        places.push_back(next);
        next += p.count;
    }
    return places;
}

constexpr std::int64_t unknown_sum = std::numeric_limits<std::int64_t>::min();

}  // namespace

struct Saver::State {
    State(const Collectives& r, SaveSettings s, const Program& p, const Coordinate& at, Arena& a, std::span<std::byte> memory);

    Pieces share(std::size_t t) const { return share_of(held.of(tensors[t].parameter, tensors[t].what)); }
    std::int64_t most_values() const { return settings.most_bytes / static_cast<std::int64_t>(sizeof(float)); }
    std::int64_t values() const { return places.empty() ? 0 : places.back() + counts.back(); }  // of this rank
    Saved write(const Collectives& by, const TrainingPoint& point, const Source& from);
    fs::path make(const Collectives& by, const TrainingPoint& point, std::optional<PartialFolder>& folder, Saved& saved);
    void share_places(const Collectives& by);
    void fill(const Collectives& by, const fs::path& file, const Source& from);
    std::vector<char> fill_in_order(const Collectives& by, const fs::path& file, const Source& from, std::vector<std::int64_t>& checksums);
    void fill_rest(const Collectives& by, CollectiveFile& open, const fs::path& file, const Source& from, const std::vector<char>& in_order,
                   std::vector<std::int64_t>& checksums);
    [[noreturn]] void fail_to_read_back(const fs::path& file, std::size_t t) const;
    Pieces pieces(std::size_t t, const Source& from) const;
    void take_snapshot();
    void serve(TrainingPoint point, double begin);
    void join();

    const Collectives& ranks;
    const SaveSettings settings;
    const Program& program;
    Arena& arena;
    const Holdings held;
    const std::span<float> snapshot;
    std::vector<StateTensor> tensors;
    std::vector<std::int64_t> counts, places;  // values of this rank's share of each tensor, and where they begin in the snapshot
    std::vector<std::string> notes;
    std::vector<Saved> finished;

    std::atomic<std::int64_t> beats = 0;  // of the thread
    std::optional<Collectives> behind;    // the thread's
    std::thread thread;
    std::atomic<bool> idle = true;
    std::exception_ptr failure;         // the thread's, read when it is idle
    Saved written;
    Removal removal;  // rank 0's, of older steps
};

Saver::State::State(const Collectives& r, SaveSettings s, const Program& p, const Coordinate& c, Arena& a, std::span<std::byte> memory)
    : ranks(r), settings(std::move(s)), program(p), arena(a), held(p, c, a),
      snapshot(reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float)), tensors(state_tensors(r, held)) {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        const std::int64_t place = values();
        places.push_back(place);
        counts.push_back(total(share(t)));
    }
    require(!settings.asynchronous || values() <= std::ssize(snapshot), "checkpoint: the snapshot does not fit");
    require(!settings.asynchronous || settings.fail_alone, "checkpoint: a thread needs a way to end the job");
    if (settings.asynchronous) behind.emplace(ranks.comm(), &beats);
    on_first_rank(ranks, [&] {
        notes = remove_leftovers(settings.directory);
        return std::string();
    });
}

// Rank 0 makes the file; all get its name. What older steps took of the disk is given back before, so that there are never more than keep + 1.
fs::path Saver::State::make(const Collectives& by, const TrainingPoint& point, std::optional<PartialFolder>& folder, Saved& saved) {
    return on_first_rank(by, [&] {
        saved.notes = removal.wait();
        saved.removal_seconds = removal.seconds();
        folder.emplace(settings.directory, point.step);
        const fs::path file = folder->path() / "checkpoint.h5";
        std::vector<StoredTensor> stored = stored_of(tensors);
        make_file(file, point, stored);
        for (std::size_t t = 0; t < tensors.size(); ++t) tensors[t].stored = stored[t];
        return file.string();
    });
}

// Where the tensors are in the file, as rank 0 has found, on all ranks.
void Saver::State::share_places(const Collectives& by) {
    std::vector<std::int64_t> all(2 * tensors.size());
    for (std::size_t t = 0; t < tensors.size() && by.rank() == 0; ++t) {
        all[2 * t] = tensors[t].stored.offset;
        all[2 * t + 1] = tensors[t].stored.bytes;
    }
    by.max(std::span(all));
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        tensors[t].stored.offset = all[2 * t];
        tensors[t].stored.bytes = all[2 * t + 1];
    }
}

// All ranks write their shares, straight to the disk where they can, and read back what has gone another way while it is on its way there.
void Saver::State::fill(const Collectives& by, const fs::path& file, const Source& from) {
    share_places(by);
    CollectiveFile open(by, file, PlainFile::Open::write, settings.hints);
    std::vector<std::int64_t> checksums(tensors.size(), unknown_sum);
    const std::vector<char> in_order = fill_in_order(by, file, from, checksums);
    fill_rest(by, open, file, from, in_order, checksums);
    by.max(std::span(checksums));
    for (std::size_t t = 0; t < tensors.size(); ++t) tensors[t].stored.checksum = static_cast<std::uint64_t>(checksums[t]);
    together(by, [&] { open.sync([&] { by.beat(); }); });
}

// Large runs, each by its rank alone. Hints are about MPI-IO, so where there are any it gets all. Returns which tensors it has begun.
std::vector<char> Saver::State::fill_in_order(const Collectives& by, const fs::path& file, const Source& from, std::vector<std::int64_t>& checksums) {
    std::unique_ptr<DirectFile> direct;
    if (settings.hints.empty()) together(by, [&] { direct = DirectFile::open(file); });
    if (!by.all(direct != nullptr)) return std::vector<char>(tensors.size());
    std::vector<Extents> runs;
    for (std::size_t t = 0; t < tensors.size(); ++t) runs.push_back(elements_of(share(t)));
    const Turns turns = turns_of(by, tensors, runs, settings.least_direct);
    together(by, [&] {
        write_in_order(by, *direct, tensors, turns.mine, [&](std::size_t t) { return pieces(t, from); }, arena, from.passage, from.most, checksums);
    });
    return turns.in_order;
}

// What is left, through MPI-IO, and its way back: of tensors written in order the ends of this rank's run, else all, each by one rank.
void Saver::State::fill_rest(const Collectives& by, CollectiveFile& open, const fs::path& file, const Source& from, const std::vector<char>& in_order,
                             std::vector<std::int64_t>& checksums) {
    const auto rest = [&](std::size_t t) { return in_order[t] ? ends(tensors[t].stored, pieces(t, from)) : pieces(t, from); };
    std::vector<std::int64_t> rest_counts;
    for (std::size_t t = 0; t < tensors.size(); ++t) rest_counts.push_back(in_order[t] ? total(rest(t)) : counts[t]);
    const auto values_of = [&](const Pieces& part, std::int64_t before) { return places_of(part, arena, from, before); };
    std::vector<std::uint64_t> written;
    together(by, [&] { written = write_tensors(by, open, tensors, rounds_of(by, tensors, rest_counts, from.most), rest, values_of); });
    together(by, [&] { open.close(); });  // where no rank has failed: it is collective
    together(by, [&] {
        const PlainFile plain(file, PlainFile::Open::read);
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            if (!in_order[t]) continue;
            if (fingerprint_in(plain, tensors[t].stored, elements_of(rest(t))) != std::exchange(written[t], 0)) fail_to_read_back(file, t);
        }
    });
    by.sum(std::span(written));
    std::vector<StoredTensor> others;
    for (std::size_t t = 0; t < tensors.size(); ++t)
        if (!in_order[t]) others.push_back(tensors[t].stored);
    const std::vector<Sums> read = sums_of(by, file, others, settings.threads);
    for (std::size_t t = 0, o = 0; t < tensors.size(); ++t) {
        if (in_order[t]) continue;
        if (read[o].fingerprint != written[t]) fail_to_read_back(file, t);
        checksums[t] = static_cast<std::int64_t>(read[o++].checksum);
    }
}

void Saver::State::fail_to_read_back(const fs::path& file, std::size_t t) const {
    throw SharedError(Exit::io_failed,
                      fmt::format("{}: {} reads back as something else than was written", file.string(), tensors[t].stored.path));
}

// This rank's share of a tensor: where it is kept, or its copy in the snapshot.
Pieces Saver::State::pieces(std::size_t t, const Source& from) const {
    Pieces pieces = share(t);
    if (!from.is_snapshot) return pieces;
    auto* next = reinterpret_cast<std::byte*>(snapshot.data() + places[t]);
    for (Piece& p : pieces) {
        p.data = next;
        p.dtype = DType::f32;
        p.far = false;
        p.place = -1;
        next += p.count * bytes_of(p.dtype);
    }
    return pieces;
}

Saved Saver::State::write(const Collectives& by, const TrainingPoint& point, const Source& from) {
    Saved saved{settings.directory / step_name(point.step), point.step};
    std::optional<PartialFolder> folder;  // rank 0's
    const fs::path file = make(by, point, folder, saved);
    fill(by, file, from);
    for (const StateTensor& t : tensors) saved.bytes += t.stored.bytes;
    on_first_rank(by, [&] {
        seal_file(file, stored_of(tensors));
        folder->keep();
        removal.begin(retire_old(settings.directory, point.step, settings.keep, saved.notes));
        return std::string();
    });
    return saved;
}

void Saver::State::take_snapshot() {
    const Passage passage(free_between_steps(program, arena));
    for (std::size_t t = 0; t < tensors.size(); ++t) gather_into(snapshot.data() + places[t], share(t), arena, passage);
}

// The thread: a save from the snapshot.
void Saver::State::serve(TrainingPoint point, double begin) {
    try {
        const Passage none({});
        written = write(*behind, point, Source{true, none, most_values()});
        written.seconds = now() - begin;
    } catch (const SharedError&) {
        failure = std::current_exception();
    } catch (const std::exception& e) {
        settings.fail_alone(e);
        failure = std::current_exception();
    }
    idle = true;
}

// The thread is idle on all ranks: takes over what it has left.
void Saver::State::join() {
    if (!thread.joinable()) return;
    thread.join();
    if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
    finished.push_back(written);
}

Saver::Saver(const Collectives& ranks, SaveSettings settings, const Program& training, const Coordinate& at, Arena& arena,
             std::span<std::byte> snapshot)
    : state_(std::make_unique<State>(ranks, std::move(settings), training, at, arena, snapshot)) {}

Saver::~Saver() {
    if (state_->thread.joinable()) state_->thread.join();
}

bool Saver::save(const TrainingPoint& point) {
    State& s = *state_;
    const double begin = now();
    if (!s.ranks.all(s.idle)) return false;
    s.join();
    if (!s.settings.asynchronous) {
        const Passage passage(free_between_steps(s.program, s.arena));
        s.finished.push_back(s.write(s.ranks, point, Source{false, passage, std::min(s.most_values(), passage.capacity())}));
        s.finished.back().seconds = now() - begin;
        return true;
    }
    together(s.ranks, [&] { s.take_snapshot(); });
    s.idle = false;
    s.thread = std::thread([&s, point, begin] { s.serve(point, begin); });
    return true;
}

void Saver::finish() {
    State& s = *state_;
    // Waits here for what this rank does, and is seen to get on only as far as that does: the watchdog looks on.
    {
        const auto told = s.ranks.waits();
        for (std::int64_t seen = s.beats; !s.idle; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
            if (const std::int64_t now = s.beats; std::exchange(seen, now) != now) s.ranks.beat();
        }
    }
    for (std::string& note : s.removal.wait()) s.notes.push_back(std::move(note));
    s.ranks.barrier();
    s.join();
}

std::vector<Saved> Saver::saved() {
    if (state_->ranks.all(state_->idle)) state_->join();
    return std::exchange(state_->finished, {});
}

std::int64_t Saver::bytes() const { return bytes_of(state_->tensors); }

std::vector<std::string> Saver::notes() { return std::exchange(state_->notes, {}); }

}  // namespace quadrille
