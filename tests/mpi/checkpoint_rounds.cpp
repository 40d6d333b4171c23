// The calls of a save: few, alike on all ranks whichever fails, and never of some ranks alone. MPI's own calls are counted, and made to fail, by
// functions of their names that stand before the library's.
#include "checkpoint/transfer.hpp"
#include "checkpoint_fixture.hpp"

#include <array>
#include <functional>
#include <numeric>

using namespace quadrille;
using namespace quadrille::test;

namespace fs = std::filesystem;

namespace {

struct Calls {
    int collective = 0;                  // of all kinds, that this program makes
    int moves = 0;                       // of them, of values
    bool fails_to_open = false;          // this rank is told so, though it has
    int types_until_failure = 1 << 30;   // that this rank may make
    bool throws = false;                 // where it fails by these, no Error
    bool fails_to_close = false;         // this rank is told so, though it has, and has its handle still
    int closed = 0;                      // files
    std::vector<MPI_File> opened;        // where fails_to_open is set anywhere, for nobody else can close these
};
Calls calls;

}  // namespace

extern "C" {
int MPI_Allreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    ++calls.collective;
    return PMPI_Allreduce(from, to, count, type, op, comm);
}
int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    ++calls.collective;
    return PMPI_Bcast(buffer, count, type, root, comm);
}
int MPI_File_open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* file) {
    ++calls.collective;
    const int rc = PMPI_File_open(comm, name, mode, info, file);
    if (rc == MPI_SUCCESS) calls.opened.push_back(*file);
    return calls.fails_to_open ? MPI_ERR_IO : rc;
}
int MPI_File_close(MPI_File* file) {
    ++calls.closed;
    MPI_File closed = *file;
    const int rc = PMPI_File_close(&closed);
    if (calls.fails_to_close) return MPI_ERR_IO;
    *file = closed;
    return rc;
}
int MPI_File_set_view(MPI_File file, MPI_Offset at, MPI_Datatype element, MPI_Datatype type, const char* representation, MPI_Info info) {
    ++calls.collective;
    return PMPI_File_set_view(file, at, element, type, representation, info);
}
int MPI_File_write_at_all(MPI_File file, MPI_Offset at, const void* from, int count, MPI_Datatype type, MPI_Status* status) {
    ++calls.collective, ++calls.moves;
    return PMPI_File_write_at_all(file, at, from, count, type, status);
}
int MPI_Type_create_hindexed(int count, const int lengths[], const MPI_Aint places[], MPI_Datatype of, MPI_Datatype* made) {
    if (--calls.types_until_failure < 0) {
        if (calls.throws) throw std::logic_error("a mistake of the program");
        return MPI_ERR_TYPE;
    }
    return PMPI_Type_create_hindexed(count, lengths, places, of, made);
}
}

namespace {

bool last_rank() { return world().rank() == world().size() - 1; }

// One tensor of so many values and another behind it, each rank with an equal part of both, in a file that is there.
class TwoTensors {
  public:
    explicit TwoTensors(const fs::path& file) : file_(file), values_(static_cast<std::size_t>(each)) {
        for (const std::int64_t offset : {std::int64_t{4096}, 4096 + bytes()}) {
            StateTensor t;
            t.stored.path = "/" + std::to_string(offset);
            t.stored.offset = offset;
            t.stored.bytes = bytes();
            tensors_.push_back(t);
        }
        std::iota(values_.begin(), values_.end(), 1000.0f * static_cast<float>(world().rank()));
        if (world().rank() == 0) {
            PlainFile made(file, PlainFile::Open::make);
            made.write(4096 + 2 * bytes() - 1, std::array{std::byte{0}});
        }
        world().barrier();
    }

    static constexpr std::int64_t each = 1000;  // values of a rank
    static std::int64_t bytes() { return each * world().size() * 4; }
    Pieces pieces(float* at) const { return {{reinterpret_cast<std::byte*>(at), DType::f32, each * world().rank(), each}}; }
    Rounds rounds() const { return rounds_of(world(), tensors_, {each, each}, 300); }  // seven

    void write(CollectiveFile& file, const std::function<void(std::int64_t)>& before_each = [](std::int64_t) {}) {
        const auto values_of = [&](const Pieces& part, std::int64_t) {
            const std::int64_t begin = part.front().element - each * world().rank();
            before_each(begin);
            return std::vector<const float*>{values_.data() + begin};
        };
        write_tensors(world(), file, tensors_, rounds(), [&](std::size_t) { return pieces(values_.data()); }, values_of);
    }
    // Each tensor twice, as weights and masters are read.
    std::int64_t wrong(CollectiveFile& file) {
        std::vector<StateTensor> tensors = tensors_;
        tensors.insert(tensors.end(), tensors_.begin(), tensors_.end());
        std::vector<std::vector<float>> found(4, std::vector<float>(static_cast<std::size_t>(each)));
        std::vector<std::byte> memory(64 << 10);
        const Passage passage(memory);
        read_tensors(world(), file, tensors, rounds_of(world(), tensors, std::vector<std::int64_t>(4, each), 300),
                     [&](std::size_t t) { return pieces(found[t].data()); }, passage, [](const float* from, const Pieces& part) {
                         float* to = reinterpret_cast<float*>(part[0].data);
                         for (std::int64_t i = 0; i < part[0].count; ++i) to[i] = from[i];
                     });
        std::int64_t wrong = 0;
        for (const std::vector<float>& of : found) wrong += of != values_;
        return wrong;
    }
    CollectiveFile open(PlainFile::Open how) const { return {world(), file_, how, {}}; }

  private:
    const fs::path file_;
    std::vector<float> values_;
    std::vector<StateTensor> tensors_;
};

// The calls of a save of a model of so many layers: those that move values, and all others but their views, which are as many.
struct SaveCalls { std::int64_t moves = 0, others = 0, bytes_of_a_rank = 0; };
SaveCalls calls_of_a_save(int layers, std::int64_t most_bytes) {
    const SharedDirectory directory;
    Config config = on_grid(tiny(false), world().size(), 1, 1, 1);
    config.model.num_layers = layers;
    StateOnGrid state(config, world().rank(), "");
    state.fill();
    SaveSettings settings;
    settings.directory = directory.path();
    settings.most_bytes = most_bytes;
    Saver saver(world(), settings, state.program(), state.at(), state.arena());
    const Calls before = calls;
    CHECK(saver.save(point_at(1)));
    const std::int64_t moves = calls.moves - before.moves;
    return {moves, calls.collective - before.collective - 2 * moves, saver.saved().at(0).bytes / world().size()};
}

// What a rank throws; "" where it throws nothing.
std::string thrown_by(const std::function<void()>& work) {
    try {
        work();
    } catch (const SharedError& e) {
        return std::string("shared: ") + e.what();
    } catch (const std::exception& e) {
        return e.what();
    }
    return "";
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("a save makes as many calls whatever the number of tensors, but for its rounds, and these by its bytes alone") {
    const SaveCalls few = calls_of_a_save(1, 4096), many = calls_of_a_save(3, 4096);
    CHECK(few.others == many.others);
    CHECK(few.others <= 24);
    for (const SaveCalls& of : {few, many}) CHECK(of.moves <= of.bytes_of_a_rank / 4096 + 2);  // a rank may have a value more of each tensor
    CHECK(calls_of_a_save(3, 1024).moves > 3 * many.moves);
}

TEST_CASE("rounds cross the borders of tensors; a dataset that is wanted twice is read twice") {
    const SharedDirectory directory;
    TwoTensors tensors(directory.path() / "file");
    const int before = calls.moves;
    {
        CollectiveFile file = tensors.open(PlainFile::Open::write);
        tensors.write(file);
        file.close();
    }
    CHECK(calls.moves - before == 7);
    CollectiveFile file = tensors.open(PlainFile::Open::read);
    CHECK(tensors.wrong(file) == 0);
}

TEST_CASE("a rank that fails in a round, of whatever, calls on with nothing, and throws at the end") {
    const SharedDirectory directory;
    TwoTensors tensors(directory.path() / "file");
    CollectiveFile file = tensors.open(PlainFile::Open::write);
    const auto alike = [&](const std::function<void()>& work) {
        const int before = calls.collective;
        const std::string said = thrown_by(work);
        const int made = calls.collective - before;
        CHECK(world().max(made) == world().min(made));
        CHECK(said.empty() != last_rank());
        return said;
    };
    alike([&] {
        tensors.write(file, [](std::int64_t begin) {
            if (begin >= 300 && last_rank()) throw std::bad_alloc();
        });
    });
    alike([&] {
        tensors.write(file, [](std::int64_t begin) {
            if (begin >= 300 && last_rank()) throw std::logic_error("another");
        });
    });
    for (const int types : {2, 3}) {  // of the file and of the memory
        if (last_rank()) calls.types_until_failure = types;
        alike([&] { tensors.write(file); });
        calls.types_until_failure = 1 << 30;
    }
    CHECK(alike([&] { if (last_rank()) tensors.write(file), throw std::logic_error("after all"); else tensors.write(file); }) ==
          (last_rank() ? "after all" : ""));
    file.close();
    CollectiveFile again = tensors.open(PlainFile::Open::read);
    CHECK(tensors.wrong(again) == 0);
}

TEST_CASE("a save that one rank fails in, of whatever, fails on all, and ends the job nowhere: the next one is made") {
    const SharedDirectory directory;
    StateOnGrid state(on_grid(tiny(false), world().size(), 1, 1, 1), world().rank(), "");
    state.fill();
    for (const bool asynchronous : {false, true}) {
        SaveSettings settings;
        settings.directory = directory.path();
        settings.most_bytes = 4096;
        settings.asynchronous = asynchronous;
        bool ends_alone = false;
        settings.fail_alone = [&](const std::exception&) { ends_alone = true; };
        Saver saver(world(), settings, state.program(), state.at(), state.arena(), asynchronous ? state.snapshot() : std::span<std::byte>());
        if (last_rank()) calls.throws = true, calls.types_until_failure = 4;
        const std::string said = thrown_by([&] { saver.save(point_at(1)), saver.finish(); });
        calls.throws = false, calls.types_until_failure = 1 << 30;
        CHECK(said == "shared: a mistake of the program");
        CHECK(!ends_alone);
        CHECK(saver.save(point_at(2)));
        saver.finish();
        CHECK(saver.saved().size() == 1);
    }
}

TEST_CASE("a file that one rank cannot close is closed once") {
    const SharedDirectory directory;
    TwoTensors tensors(directory.path() / "file");
    const int before = calls.closed;
    const std::string said = thrown_by([&] {
        CollectiveFile file = tensors.open(PlainFile::Open::write);
        calls.fails_to_close = last_rank();
        together(world(), [&] { file.close(); });
    });
    calls.fails_to_close = false;
    CHECK(says(said, "shared: "));
    CHECK(says(said, "MPI-IO cannot close"));
    CHECK(calls.closed - before == 1);
}

TEST_CASE("a file that no rank can open is an error they share; one that some have open must end the job") {
    const SharedDirectory directory;
    TwoTensors tensors(directory.path() / "file");
    CHECK(says(thrown_by([&] { CollectiveFile(world(), directory.path() / "none", PlainFile::Open::write, {}); }), "shared: "));
    calls.opened.clear();
    calls.fails_to_open = true;
    const std::string none = thrown_by([&] { tensors.open(PlainFile::Open::write); });
    CHECK(says(none, "shared: "));
    CHECK(says(none, "MPI-IO cannot open"));
    calls.fails_to_open = last_rank();
    const std::string some = thrown_by([&] { tensors.open(PlainFile::Open::write); });
    CHECK(says(some, "MPI-IO cannot open"));
    CHECK(says(some, "shared: ") == (world().size() == 1));
    calls.fails_to_open = false;
    for (MPI_File& file : calls.opened) CHECK(MPI_File_close(&file) == MPI_SUCCESS);
}
