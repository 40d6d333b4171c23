// What goes straight to the disk: which tensors, which bytes of them, and their checksums, which one rank after another takes on.
#include "checkpoint/in_order.hpp"
#include "checkpoint/plain_file.hpp"
#include "checkpoint/running_hash.hpp"
#include "checkpoint_fixture.hpp"
#include "cpu/device.hpp"

#include <xxhash.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <numeric>

using namespace quadrille;
using namespace quadrille::test;

namespace fs = std::filesystem;

namespace {

bool refuses_memory = false;          // that is aligned, much of it, to this rank
constexpr int no_failure = 1 << 30;
std::atomic<int> writes_until_failure = no_failure;  // past the page cache, of this rank

}  // namespace

// Before the C library's own.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    void* memory = nullptr;
    if (refuses_memory && bytes >= std::size_t{1} << 20) return nullptr;
    return ::posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}
extern "C" ssize_t pwrite(int descriptor, const void* from, std::size_t bytes, off_t offset) {
    if ((::fcntl(descriptor, F_GETFL) & O_DIRECT) && writes_until_failure-- <= 0) {
        errno = EIO;
        return -1;
    }
    return ::syscall(SYS_pwrite64, descriptor, from, bytes, offset);
}

namespace {

int last() { return world().size() - 1; }

std::ptrdiff_t open_files() { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); }

// Whether the system's temporary files are on a file system that takes direct writes; alike on all ranks.
bool writes_straight() {
    const SharedDirectory directory;
    const fs::path file = directory.path() / "file";
    if (world().rank() == 0) PlainFile(file, PlainFile::Open::make).write(0, std::array{std::byte{0}});
    world().barrier();
    if (world().all(DirectFile::open(file) != nullptr)) return true;
    MESSAGE("skipped: " << directory.path().string() << " is on a file system without direct writes");
    return false;
}

// A device whose memory is its own: whoever asks it for the host's is wrong.
class FarDevice final : public CpuDevice {
  public:
    FarDevice() : CpuDevice(1) {}
    std::byte* reserve(std::int64_t bytes, const std::string& what) override {
        return memory_ = {CpuDevice::reserve(bytes, what), static_cast<std::size_t>(bytes)}, memory_.data();
    }
    bool shares_memory() const override { return false; }
    void read(void* host, const std::byte* device, std::int64_t bytes) override {
        require(device >= memory_.data() && device + bytes <= memory_.data() + memory_.size(), "no memory of the device");
        CpuDevice::read(host, device, bytes);
    }

  private:
    std::span<std::byte> memory_;
};

// A model whose runs are blocks of a disk, but for their ends, whatever the number of ranks.
Config wide() {
    Config c = on_grid(tiny(false), world().size(), 1, 1, 1);
    c.model.num_layers = 2;
    c.model.hidden_size = 64;
    c.model.head_dim = 16;
    c.model.ffn_hidden_size = 256;
    c.model.vocab_size = 1501;
    return c;
}

SaveSettings straight_into(const fs::path& directory) {
    SaveSettings settings;
    settings.directory = directory;
    settings.least_direct = 1;
    settings.fail_alone = [](const std::exception&) { MPI_Abort(MPI_COMM_WORLD, 1); };
    return settings;
}

// Elements that are wrong once a state has loaded the newest one there.
std::int64_t wrong_in(const fs::path& directory, const Config& c) {
    StateOnGrid state(c, world().rank(), "");
    const Found found = open_checkpoint(world(), directory);
    REQUIRE(found.checkpoint.has_value());
    load(world(), *found.checkpoint, state.program(), state.at(), state.arena());
    return state.wrong();
}

// Tensors of so many elements at odd places of a file: cut among all ranks in their order, in the opposite one, of the last rank alone, by rows that
// take turns, and one with an element that nobody writes.
class Tensors {
  public:
    explicit Tensors(const fs::path& file) : file_(file) {
        std::int64_t offset = 2052;
        for (std::size_t t = 0; t < count; ++t) {
            StateTensor tensor;
            tensor.stored = {"/" + std::to_string(t), {elements}, offset, 4 * elements, 0};
            tensors_.push_back(tensor);
            values_[t].resize(elements);
            std::iota(values_[t].begin(), values_[t].end(), 1000.0f * static_cast<float>(t));
            offset += 4 * elements + 4;
        }
        if (world().rank() == 0) {
            PlainFile made(file, PlainFile::Open::make);
            made.write(offset, std::array{std::byte{0}});
        }
        world().barrier();
    }

    static constexpr std::size_t count = 5;
    static constexpr std::int64_t elements = 20011;  // some twenty blocks

    Pieces pieces(std::size_t t) {
        const int n = world().size(), rank = world().rank();
        switch (t) {
            case 0: return run(t, equal_cut(elements, n, rank));
            case 1: return run(t, equal_cut(elements, n, last() - rank));
            case 2: return run(t, {0, rank == last() ? elements : 0});
            case 3: {
                Pieces rows;
                for (std::int64_t row = rank; row * 1000 < elements; row += n)
                    for (const Piece& p : run(t, {row * 1000, std::min<std::int64_t>(1000, elements - row * 1000)})) rows.push_back(p);
                return rows;
            }
            default: return run(t, equal_cut(elements - 1, n, rank));
        }
    }
    Turns turns(std::int64_t least = 1) {
        std::vector<Extents> runs;
        for (std::size_t t = 0; t < count; ++t) runs.push_back(elements_of(pieces(t)));
        return turns_of(world(), tensors_, runs, least);
    }
    // The checksums as all ranks have them, the lowest number of those that are not written so.
    std::vector<std::int64_t> write(const Turns& turns, std::int64_t portion, const PiecesOf& pieces_of) {
        std::vector<std::int64_t> checksums(count, std::numeric_limits<std::int64_t>::min());
        CpuDevice device(1);
        Arena arena(device, {0, 0, 0}, "the test", world().rank(), 1);
        const Passage passage({});
        const auto direct = DirectFile::open(file_);
        write_in_order(world(), *direct, tensors_, turns.mine, pieces_of, arena, passage, portion, checksums);
        world().max(std::span(checksums));
        return checksums;
    }
    std::int64_t checksum(std::size_t t) const { return static_cast<std::int64_t>(XXH3_64bits(values_[t].data(), 4 * elements)); }
    const StoredTensor& stored(std::size_t t) const { return tensors_[t].stored; }
    // How many elements of these the file has not.
    std::int64_t missing(std::size_t t, const Extent& of) const {
        std::vector<float> found(static_cast<std::size_t>(of.count));
        PlainFile(file_, PlainFile::Open::read).read(stored(t).offset + 4 * of.offset, std::as_writable_bytes(std::span(found)));
        std::int64_t missing = 0;
        for (std::size_t i = 0; i < found.size(); ++i) missing += found[i] != values_[t][static_cast<std::size_t>(of.offset) + i];
        return missing;
    }

  private:
    Pieces run(std::size_t t, Extent of) {
        if (of.count == 0) return {};
        return {{reinterpret_cast<std::byte*>(values_[t].data() + of.offset), DType::f32, of.offset, of.count}};
    }

    const fs::path file_;
    std::array<std::vector<float>, count> values_;
    std::vector<StateTensor> tensors_;
};

}  // namespace

TEST_CASE("a hash that is handed on gives what one process would have found, wherever it is cut") {
    std::vector<std::byte> bytes(5000);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i + i / 7);
    for (const std::size_t cut : {0, 1, 200, 240, 241, 256, 1024, 2000, 4999, 5000}) {
        RunningHash first;
        first.add(std::span(bytes).first(cut));
        RunningHash second(first.hand_on());
        second.add(std::span(bytes).subspan(cut));
        CHECK(second.value() == XXH3_64bits(bytes.data(), bytes.size()));
    }
}

TEST_CASE("tensors that every rank has one run of are written in order, the others are left; whole blocks of runs alone") {
    if (!writes_straight()) return;
    const SharedDirectory directory;
    Tensors tensors(directory.path() / "file");
    const Turns turns = tensors.turns();
    const bool alone = world().size() == 1;
    CHECK(std::vector<int>(turns.in_order.begin(), turns.in_order.end()) == std::vector<int>{1, 1, 1, alone, 0});
    CHECK(tensors.turns(4 * Tensors::elements + 1).mine.empty());
    for (const Turn& turn : turns.mine) {
        const Extent whole = whole_blocks(tensors.stored(turn.tensor), turn.run);
        CHECK((tensors.stored(turn.tensor).offset + 4 * whole.offset) % 4096 == 0);
        CHECK(whole.count % 1024 == 0);
        CHECK(whole.count > turn.run.count - 2048);
    }
    // In one portion and in many, of which some end inside a block of the file.
    for (const std::int64_t portion : {std::int64_t{1} << 20, std::int64_t{1500}}) {
        const std::vector<std::int64_t> checksums = tensors.write(turns, portion, [&](std::size_t t) { return tensors.pieces(t); });
        for (std::size_t t = 0; t < Tensors::count; ++t)
            if (turns.in_order[t]) CHECK(checksums[t] == tensors.checksum(t));
        for (const Turn& turn : turns.mine) {
            const Extent whole = whole_blocks(tensors.stored(turn.tensor), turn.run);
            CHECK(tensors.missing(turn.tensor, whole) == 0);
            if (whole.offset > turn.run.offset) CHECK(tensors.missing(turn.tensor, {turn.run.offset, 1}) == (turn.tensor + turn.run.offset > 0));
        }
        world().barrier();
    }
}

TEST_CASE("behind training, the ends of a run that is cut inside blocks are written from the snapshot, however much a round has before them; "
          "its values are the host's, wherever the state is") {
    const Config c = wide();
    for (const bool far : {false, true}) {
        const SharedDirectory directory;
        StateOnGrid state(c, world().rank(), "", far ? std::make_unique<FarDevice>() : std::make_unique<CpuDevice>(1));
        state.fill();
        SaveSettings settings = straight_into(directory.path());
        settings.asynchronous = true;
        settings.least_direct = 256 << 10;  // the table alone
        Saver saver(world(), settings, state.program(), state.at(), state.arena(), state.snapshot());
        REQUIRE(saver.save(point_at(1)));
        saver.finish();
        REQUIRE(saver.saved().size() == 1);
        CHECK(wrong_in(directory.path(), c) == 0);
    }
}

TEST_CASE("a rank that is refused memory to write straight to the disk sends all through MPI-IO, and keeps nothing open") {
    const Config c = wide();
    const SharedDirectory directory;
    StateOnGrid state(c, world().rank(), "");
    state.fill();
    Saver saver(world(), straight_into(directory.path()), state.program(), state.at(), state.arena());
    const std::ptrdiff_t open = open_files();
    refuses_memory = world().rank() == last();
    REQUIRE(saver.save(point_at(1)));
    refuses_memory = false;
    CHECK(open_files() == open);
    CHECK(wrong_in(directory.path(), c) == 0);
}

TEST_CASE("a disk that fails one rank's write, with hashes under way, fails the save on all, with the reason; the next one is made") {
    if (!writes_straight()) return;
    const Config c = wide();
    const SharedDirectory directory;
    StateOnGrid state(c, world().rank(), "");
    state.fill();
    Saver saver(world(), straight_into(directory.path()), state.program(), state.at(), state.arena());
    writes_until_failure = world().rank() == world().size() / 2 ? 3 : no_failure;
    std::string said;
    try {
        saver.save(point_at(1));
    } catch (const SharedError& e) {
        said = e.what();
    }
    writes_until_failure = no_failure;
    CAPTURE(said);
    CHECK(said.find("checkpoint.h5") != std::string::npos);
    CHECK(said.find("Input/output error") != std::string::npos);
    REQUIRE(saver.save(point_at(2)));
    CHECK(wrong_in(directory.path(), c) == 0);
}

TEST_CASE("a rank that fails hands on what others wait for, and throws at the end") {
    if (!writes_straight()) return;
    const SharedDirectory directory;
    Tensors tensors(directory.path() / "file");
    const Turns turns = tensors.turns();
    std::string said;
    try {
        together(world(), [&] {
            std::vector<std::int64_t> checksums(Tensors::count);
            CpuDevice device(1);
            Arena arena(device, {0, 0, 0}, "the test", world().rank(), 1);
            const Passage passage({});
            const auto direct = DirectFile::open(directory.path() / "file");
            std::vector<StateTensor> stored;
            for (std::size_t t = 0; t < Tensors::count; ++t) stored.push_back({tensors.stored(t)});
            write_in_order(world(), *direct, stored, turns.mine,
                           [&](std::size_t t) {
                               if (world().rank() == 0) throw std::logic_error("a mistake of the program");
                               return tensors.pieces(t);
                           }, arena, passage, 4096, checksums);
        });
    } catch (const SharedError& e) {
        said = e.what();
    }
    CHECK(said == "a mistake of the program");
}
