// The files of checkpoints: what is in them, what damage does, who goes when, and what a save that fails leaves.
#include "checkpoint/checksums.hpp"
#include "checkpoint/inspect.hpp"
#include "checkpoint/state_tensors.hpp"
#include "checkpoint/steps.hpp"
#include "checkpoint/stored_file.hpp"
#include "checkpoint_fixture.hpp"
#include "record/hdf5.hpp"
#include "record/replace_file.hpp"

#include <sys/file.h>
#include <sys/resource.h>
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <csignal>
#include <fstream>
#include <functional>

using namespace quadrille;
using namespace quadrille::test;

namespace fs = std::filesystem;

namespace {

// All ranks of the world, a checkpoint a call.
class Run {
  public:
    Run(const fs::path& directory, std::int64_t keep = 0, bool asynchronous = false)
        : state_(on_grid(tiny(false), world().size(), 1, 1, 1), world().rank(), "") {
        state_.fill();
        SaveSettings settings;
        settings.directory = directory;
        settings.keep = keep;
        settings.most_bytes = 4096;
        settings.asynchronous = asynchronous;
        settings.fail_alone = [](const std::exception&) { MPI_Abort(MPI_COMM_WORLD, 1); };
        const std::span<std::byte> snapshot = asynchronous ? state_.snapshot() : std::span<std::byte>();
        saver_ = std::make_unique<Saver>(world(), settings, state_.program(), state_.at(), state_.arena(), snapshot);
    }
    Saver& saver() { return *saver_; }
    StateOnGrid& state() { return state_; }
    void save(std::int64_t step) { REQUIRE(saver_->save(point_at(step))); }

  private:
    StateOnGrid state_;
    std::unique_ptr<Saver> saver_;
};

// Runs `work` on rank 0 alone, while the others wait.
void on_first(const std::function<void()>& work) {
    if (world().rank() == 0) work();
    world().barrier();
}

std::vector<std::string> names_in(const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

void flip_byte(const fs::path& file, std::int64_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const auto byte = static_cast<char>(stream.get() ^ 0x10);
    stream.seekp(at);
    stream.put(byte);
}

std::string failure_of(const std::function<void()>& work, Exit exit = Exit::io_failed) {
    try {
        work();
    } catch (const Error& e) {
        CHECK(e.exit() == exit);
        return e.what();
    }
    return "";
}

bool says(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

const char* const some_tensor = "/optimizer/v/layers.1.mlp.up.weight";

}  // namespace

TEST_CASE("the file as HDF5 sees it: one dataset per parameter and moment, in its global shape, with its checksum; and the point") {
    const SharedDirectory directory;
    Run run(directory.path());
    run.save(3);
    on_first([&] {
        const fs::path file = directory.path() / "step-00000003" / "checkpoint.h5";
        const QuietHdf5 quiet;
        const Hdf5Id open(H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
        REQUIRE(open >= 0);
        for (const Parameter& p : run.state().program().parameters)
            for (const StateKind what : {StateKind::master, StateKind::m, StateKind::v}) {
                const std::string path = dataset_path(p.name, what);
                CAPTURE(path);
                const Hdf5Id dataset(H5Dopen2(open, path.c_str(), H5P_DEFAULT), H5Dclose), space(H5Dget_space(dataset), H5Sclose);
                REQUIRE(dataset >= 0);
                std::array<hsize_t, 4> dims{};
                const int rank = H5Sget_simple_extent_dims(space, dims.data(), nullptr);
                CHECK(std::vector<std::int64_t>(dims.begin(), dims.begin() + rank) == p.shape);
                std::vector<float> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
                REQUIRE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
                std::int64_t wrong = 0;
                for (std::size_t i = 0; i < values.size(); ++i) wrong += values[i] != StateOnGrid::value(p.name, what, static_cast<std::int64_t>(i));
                CHECK(wrong == 0);
                const auto checksum = hdf5::unsigned_attribute(dataset, "xxh3_64", path);
                CHECK(checksum == XXH3_64bits(values.data(), values.size() * sizeof(float)));
            }
        CHECK(hdf5::int_attribute(open, "step", "") == 3);
        CHECK(hdf5::unsigned_attribute(open, "seed", "") == point_at(3).seed);
        const Hdf5Id config(H5Gopen2(open, "/config", H5P_DEFAULT), H5Gclose);
        CHECK(hdf5::text_attribute(config, "yaml", "") == point_at(3).config_yaml);
    });
    const Found found = find_newest(world(), directory.path());
    REQUIRE(found.checkpoint.has_value());
    TrainingPoint point = found.checkpoint->point;
    CHECK(!point.version.empty());
    point.version = point.git_commit = "";
    CHECK(point == point_at(3));
    on_first([&] {
        const std::string text = inspect_checkpoint(directory.path());
        CHECK(says(text, "step       3, 2 updates, 24 sequences, seed 18364758544493064720, loss scale 1024 for 3 good steps"));
        CHECK(says(text, fmt::format("{:016x}, of all datasets: verified", found.checkpoint->checksum)));
        CHECK(says(text, some_tensor));
    });
}

TEST_CASE("a checkpoint of a program that knew of no stale gradients is read as one without") {
    const SharedDirectory directory;
    TrainingPoint point = point_at(5);
    point.follows_a_step = true;
    const auto read_back = [&](bool older) {
        const fs::path folder = directory.path() / "step-00000005";
        fs::create_directories(folder);
        std::vector<StoredTensor> tensors(1);
        tensors[0].path = "/parameters/p";
        tensors[0].shape = {2, 3};
        const fs::path file = folder / "checkpoint.h5";
        make_file(file, point, tensors);
        if (older) {
            const QuietHdf5 quiet;
            const Hdf5Id open(H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
            REQUIRE(H5Adelete(open, "follows_a_step") >= 0);
        }
        seal_file(file, tensors);
        const Checkpoint found = read_structures(folder);
        fs::remove_all(folder);
        return found.point.follows_a_step;
    };
    on_first([&] {
        CHECK(read_back(false));
        CHECK_FALSE(read_back(true));
    });
}

TEST_CASE("damage is named, and the newest whole one found behind it") {
    struct Damage { const char* name; std::string says; std::function<void(const Checkpoint&)> make; };
    const auto cut_to = [](std::uintmax_t bytes) { return [bytes](const Checkpoint& c) { fs::resize_file(c.file(), bytes); }; };
    const std::vector<Damage> kinds = {
        {"one byte less", "truncated", [](const Checkpoint& c) { fs::resize_file(c.file(), fs::file_size(c.file()) - 1); }},
        {"half", "truncated", [](const Checkpoint& c) { fs::resize_file(c.file(), fs::file_size(c.file()) / 2); }},
        {"96 bytes", "truncated", cut_to(96)},
        {"16 bytes", "truncated", cut_to(16)},
        {"nothing", "is empty", cut_to(0)},
        {"one byte more", "truncated, or another file", [](const Checkpoint& c) { std::ofstream(c.file(), std::ios::app) << 'x'; }},
        {"a flipped value", std::string(some_tensor) + " is damaged: its checksum is",
         [](const Checkpoint& c) { flip_byte(c.file(), c.find(some_tensor)->offset + c.find(some_tensor)->bytes / 2); }},
        {"a flipped structure", "the checksum of its structures fails", [](const Checkpoint& c) { flip_byte(c.file(), 40); }},
        {"a flipped seal", "the checksum of its seal fails",
         [](const Checkpoint& c) { flip_byte(c.file(), static_cast<std::int64_t>(fs::file_size(c.file())) - 100); }},
        {"a deleted dataset", "truncated, or",
         [](const Checkpoint& c) {
             const QuietHdf5 quiet;
             const Hdf5Id open(H5Fopen(c.file().c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
             REQUIRE(H5Ldelete(open, some_tensor, H5P_DEFAULT) >= 0);
         }},
        {"another HDF5 file", "does not end with the seal of a checkpoint",
         [](const Checkpoint& c) { Hdf5Id(H5Fcreate(c.file().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose); }},
        {"another file", "does not end with the seal of a checkpoint",
         [](const Checkpoint& c) { std::ofstream(c.file()) << std::string(5000, 'a'); }},
        {"no file", "is missing", [](const Checkpoint& c) { fs::remove(c.file()); }},
        {"a folder in the file's place", "is no file",
         [](const Checkpoint& c) {
             fs::remove(c.file());
             fs::create_directory(c.file());
         }},
    };
    const SharedDirectory saved;
    {
        Run run(saved.path());
        run.save(1);
        run.save(2);
    }
    for (const Damage& damage : kinds) {
        CAPTURE(damage.name);
        const SharedDirectory directory;
        on_first([&] { fs::copy(saved.path(), directory.path(), fs::copy_options::recursive); });
        const fs::path newest = directory.path() / "step-00000002";
        const Checkpoint whole = *open_checkpoint(world(), newest).checkpoint;
        on_first([&] { damage.make(whole); });
        const Found found = find_newest(world(), directory.path());
        REQUIRE(found.checkpoint.has_value());
        CHECK(found.checkpoint->point.step == 1);
        REQUIRE(found.passed_over.size() == 1);
        CAPTURE(found.passed_over[0]);
        CHECK(says(found.passed_over[0], whole.file().string()));
        CHECK(says(found.passed_over[0], damage.says));
        CHECK(failure_of([&] { open_checkpoint(world(), newest); }) == found.passed_over[0]);
        on_first([&] { CHECK(failure_of([&] { inspect_checkpoint(newest); }) == found.passed_over[0]); });
    }
}

TEST_CASE("a path to resume from: missing, without steps, with damaged ones alone") {
    const SharedDirectory directory;
    const fs::path missing = directory.path() / "missing", empty = directory.path() / "empty", bad = directory.path() / "bad";
    on_first([&] {
        fs::create_directories(empty / "step-12");
        fs::create_directories(bad / "step-00000012");
        std::ofstream(bad / "step-00000012" / "checkpoint.h5") << "no";
        std::ofstream(directory.path() / "file") << "no";
    });
    CHECK(says(failure_of([&] { open_checkpoint(world(), missing); }, Exit::refused), "does not exist"));
    CHECK(says(failure_of([&] { open_checkpoint(world(), directory.path() / "file"); }, Exit::refused), "is not a folder"));
    CHECK(says(failure_of([&] { open_checkpoint(world(), empty); }, Exit::refused), "holds no checkpoint"));
    const std::string said = failure_of([&] { open_checkpoint(world(), bad); });
    CHECK(says(said, "holds no whole checkpoint"));
    CHECK(says(said, "truncated, or another file"));
    CHECK(!find_newest(world(), missing).checkpoint.has_value());
    CHECK(find_newest(world(), bad).passed_over.size() == 1);
}

TEST_CASE("the newest stay, those of a run that went further too; a step is saved again in place of itself; what dead saves left goes") {
    const SharedDirectory directory;
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    const std::string host = name;
    const auto left = [&](const std::string& by) { return directory.path() / ("step-00000005.partial-" + by); };
    const fs::path dead = left(host + "-999999999-0"), elsewhere = left("another-host-12-0"), long_ago = left("another-host-13-0");
    const fs::path same_id = directory.path() / fmt::format("step-00000009.partial-{}-{}-0", host, ::getpid());  // of another container's process
    on_first([&] {
        for (const fs::path& folder : {dead, elsewhere, long_ago, same_id}) fs::create_directories(folder / "checkpoint.h5");
        for (const fs::path& path : {long_ago / "checkpoint.h5", long_ago})
            fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
        fs::create_directories(directory.path() / "mine");
    });
    Run run(directory.path(), 2);
    on_first([&] {
        CHECK(run.saver().notes().size() == 4);
        CHECK(!fs::exists(dead));
        CHECK(!fs::exists(long_ago));
        CHECK(fs::exists(elsewhere));
        fs::remove_all(elsewhere);
        fs::create_directories(same_id);  // as where the file system has no locks, and so it stays
    });
    run.save(9);
    on_first([&] { fs::remove_all(same_id); });
    for (const std::int64_t step : {1, 2, 3, 3}) run.save(step);
    on_first([&] { CHECK(names_in(directory.path()) == std::vector<std::string>{"mine", "step-00000002", "step-00000003", "step-00000009"}); });
    CHECK(open_checkpoint(world(), directory.path() / "step-00000003").checkpoint->point.step == 3);
}

TEST_CASE("a save that fails leaves nothing, and what was there as it was") {
    const SharedDirectory directory;
    Run run(directory.path());
    run.save(1);
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit small{64 << 10, limit.rlim_max};
    std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string said = failure_of([&] { run.saver().save(point_at(2)); });
    ::setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(says(said, "checkpoint.h5"));
    CHECK(says(said, "File too large"));
    on_first([&] { CHECK(names_in(directory.path()) == std::vector<std::string>{"step-00000001"}); });
    run.save(3);
    CHECK(find_newest(world(), directory.path()).checkpoint->point.step == 3);
    on_first([&] { std::ofstream(directory.path() / "f") << 1; });
    Run wrong(directory.path() / "f");
    CHECK(says(failure_of([&] { wrong.saver().save(point_at(1)); }), "cannot"));
}

TEST_CASE("a file that another process has locked: the message names the lock and what turns it off; it is not taken for damage") {
    if (const char* off = std::getenv("HDF5_USE_FILE_LOCKING"); off && std::string(off) == "FALSE") return;
    const SharedDirectory directory;
    Run run(directory.path());
    run.save(0);
    run.save(1);
    const fs::path file = directory.path() / "step-00000001" / "checkpoint.h5";
    int held = -1;
    on_first([&] {
        held = ::open(file.c_str(), O_RDWR);
        REQUIRE(::flock(held, LOCK_EX | LOCK_NB) == 0);
    });
    const std::string said = failure_of([&] { open_checkpoint(world(), directory.path() / "step-00000001"); });
    CHECK(says(said, "unable to lock file"));
    CHECK(says(said, "HDF5_USE_FILE_LOCKING=FALSE"));
    CHECK(failure_of([&] { find_newest(world(), directory.path()); }) == said);
    on_first([&] { ::close(held); });
    CHECK(open_checkpoint(world(), file.parent_path()).checkpoint->point.step == 1);
}

TEST_CASE("behind training: a save is of the moment it was asked for; one that comes too early is not made; the end waits") {
    const SharedDirectory now_directory, behind_directory;
    Run at_once(now_directory.path()), behind(behind_directory.path(), 0, true);
    const auto train = [](Run& run) {
        run.state().for_each([](const Parameter&, StateKind, const Pieces& pieces) {
            for (const Piece& p : pieces)
                for (std::int64_t k = 0; k < p.count; ++k) reinterpret_cast<float*>(p.data)[k] += 1.0f;
        });
    };
    const auto told = [&] {
        std::vector<std::int64_t> steps;
        for (const Saved& saved : behind.saver().saved()) steps.push_back(saved.step);
        return steps;
    };
    {
        const QuietHdf5 held;  // no thread of this process can make a file meanwhile
        CHECK(behind.saver().save(point_at(1)));
        train(behind);
        CHECK(!behind.saver().save(point_at(2)));
        CHECK(told().empty());
        train(behind);
    }
    behind.saver().finish();
    CHECK(told() == std::vector<std::int64_t>{1});
    CHECK(behind.saver().save(point_at(3)));
    train(behind);
    behind.saver().finish();
    CHECK(told() == std::vector<std::int64_t>{3});
    for (const std::int64_t step : {1, 2, 3}) {
        if (step != 2) at_once.save(step);
        train(at_once);
    }
    CHECK(!fs::exists(behind_directory.path() / step_name(2)));
    for (const std::int64_t step : {1, 3}) {
        const Found a = open_checkpoint(world(), now_directory.path() / step_name(step));
        const Found b = open_checkpoint(world(), behind_directory.path() / step_name(step));
        CHECK(a.checkpoint->checksum == b.checkpoint->checksum);
    }
    on_first([&] { fs::remove_all(behind_directory.path()), std::ofstream(behind_directory.path()) << 1; });
    CHECK(behind.saver().save(point_at(8)));
    CHECK(says(failure_of([&] { behind.saver().finish(); }), "cannot"));  // told by whoever asks next
}
