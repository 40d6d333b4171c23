#include "checkpoint/saver.hpp"

#include "base/error.hpp"
#include "checkpoint/checksums.hpp"
#include "checkpoint/steps.hpp"
#include "checkpoint/stored_file.hpp"
#include "checkpoint/transfer.hpp"
#include "comm/world.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
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

}  // namespace

struct Saver::State {
    State(const Collectives& r, SaveSettings s, const Program& p, const Coordinate& at, Arena& a, std::span<std::byte> memory);

    Pieces share(std::size_t t) const { return share_of(held.of(tensors[t].parameter, tensors[t].what)); }
    std::int64_t values() const { return places.empty() ? 0 : places.back() + counts.back(); }  // of this rank
    Saved write(const Collectives& by, const TrainingPoint& point, const Passage* passage);
    fs::path make(const Collectives& by, const TrainingPoint& point, std::optional<PartialFolder>& folder);
    void share_places(const Collectives& by);
    void fill(const Collectives& by, const fs::path& file, const Passage* passage);
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

// Rank 0 makes the file; all get its name, and its tensors' places.
fs::path Saver::State::make(const Collectives& by, const TrainingPoint& point, std::optional<PartialFolder>& folder) {
    return on_first_rank(by, [&] {
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

// All ranks write their shares and read what all have written, while it is on its way to the disk. Through `passage`, or from the snapshot.
void Saver::State::fill(const Collectives& by, const fs::path& file, const Passage* passage) {
    share_places(by);
    const std::int64_t most = settings.most_bytes / static_cast<std::int64_t>(sizeof(float));
    const Rounds rounds = rounds_of(by, tensors, counts, passage ? std::min(most, passage->capacity()) : most);
    const auto values_of = [&](std::size_t t, std::int64_t begin, const Pieces& part, std::int64_t before) {
        return passage ? gathered(part, arena, *passage, before) : snapshot.data() + places[t] + begin;
    };
    CollectiveFile open(by, file, PlainFile::Open::write, settings.hints);
    std::vector<std::uint64_t> written;
    together(by, [&] {
        written = write_tensors(by, open, tensors, rounds, [&](std::size_t t) { return share(t); }, values_of);
    });
    together(by, [&] { open.close(); });  // where no rank has failed: it is collective
    by.sum(std::span(written));
    const std::vector<Sums> read = sums_of(by, file, stored_of(tensors), settings.threads);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (read[t].fingerprint != written[t])
            throw SharedError(Exit::io_failed,
                              fmt::format("{}: {} reads back as something else than was written", file.string(), tensors[t].stored.path));
        tensors[t].stored.checksum = read[t].checksum;
    }
    together(by, [&] { open.sync([&] { by.beat(); }); });
}

Saved Saver::State::write(const Collectives& by, const TrainingPoint& point, const Passage* passage) {
    std::optional<PartialFolder> folder;  // rank 0's
    const fs::path file = make(by, point, folder);
    fill(by, file, passage);
    Saved saved{settings.directory / step_name(point.step), point.step, 0, 0};
    for (const StateTensor& t : tensors) saved.bytes += t.stored.bytes;
    on_first_rank(by, [&] {
        seal_file(file, stored_of(tensors));
        folder->keep();
        saved.notes = remove_old(settings.directory, point.step, settings.keep);
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
        written = write(*behind, point, nullptr);
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
        s.finished.push_back(s.write(s.ranks, point, &passage));
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
    s.ranks.barrier();
    s.join();
}

std::vector<Saved> Saver::saved() {
    if (state_->ranks.all(state_->idle)) state_->join();
    return std::exchange(state_->finished, {});
}

std::int64_t Saver::bytes() const { return bytes_of(state_->tensors); }

const std::vector<std::string>& Saver::notes() const { return state_->notes; }

}  // namespace quadrille
