// The run record: what is written is read back, run.h5 is whole at every instant, damage is found, a failed write harms nothing.
#include "base/error.hpp"
#include "record/record_reader.hpp"
#include "record/record_writer.hpp"
#include "record/replace_file.hpp"
#include "unit/record_sample.hpp"

#include <doctest.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

using namespace quadrille;

namespace {

void check_equal_tables(const RunRecord& a, const RunRecord& b) {
    CHECK(a.coordinates == b.coordinates);
    CHECK(a.time_seconds == b.time_seconds);
    CHECK(a.predicted_peak == b.predicted_peak);
    CHECK(a.measured_peak == b.measured_peak);
    CHECK(a.reserved == b.reserved);
    CHECK(a.huge_pages == b.huge_pages);
    CHECK(a.shared == b.shared);
    CHECK(a.process_peak == b.process_peak);
    CHECK(a.wire_predicted == b.wire_predicted);
    CHECK(a.wire_sent == b.wire_sent);
    CHECK(a.wire_busy == b.wire_busy);
    CHECK(a.wire_exposed == b.wire_exposed);
    CHECK(a.compute_beside == b.compute_beside);
    CHECK(a.compute_alone == b.compute_alone);
    CHECK(a.choices == b.choices);
    CHECK(a.wire_uncompressed == b.wire_uncompressed);
    CHECK(a.copies_predicted == b.copies_predicted);
    CHECK(a.copies_moved == b.copies_moved);
    REQUIRE(a.steps.size() == b.steps.size());
    for (std::size_t i = 0; i < a.steps.size(); ++i) {
        const StepRow &x = a.steps[i], &y = b.steps[i];
        const bool same = x.step == y.step && x.loss == y.loss && x.grad_norm == y.grad_norm && x.clip_factor == y.clip_factor &&
                          x.learning_rate == y.learning_rate && x.loss_scale == y.loss_scale && x.tokens == y.tokens &&
                          x.seconds == y.seconds && x.data_hash == y.data_hash && x.residual_norm == y.residual_norm;
        CHECK(same);
    }
}

std::size_t files_in(const std::filesystem::path& directory) {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
    return count;
}

std::string message_of(const auto& act, Exit exit) {
    try {
        act();
    } catch (const Error& error) {
        CHECK(error.exit() == exit);
        return error.what();
    }
    FAIL("nothing was thrown");
    return "";
}

struct Described {
    std::set<std::string> paths, bare;  // all datasets, and those that lack a unit or a description
};

herr_t visit(hid_t file, const char* name, const H5O_info_t* info, void* data) {
    if (info->type != H5O_TYPE_DATASET) return 0;
    auto& found = *static_cast<Described*>(data);
    found.paths.insert(std::string("/") + name);
    for (const char* attribute : {"unit", "description"})
        if (H5Aexists_by_name(file, name, attribute, H5P_DEFAULT) <= 0) found.bare.insert(name);
    return 0;
}

}  // namespace

TEST_CASE("a record is read back as it was written") {
    const TemporaryDirectory directory;
    RunRecord record = sample_record();
    record.exit_code = 0;
    record.complete = true;
    RecordWriter writer(directory.path());
    writer.write(record);
    RecordOrigin origin;
    const RunRecord back = read_record(writer.path(), &origin);
    check_equal_tables(record, back);
    CHECK(origin.schema == record_schema);
    CHECK(origin.version == "0.1.0");
    CHECK((origin.git_commit == "unknown" || origin.git_commit.size() >= 40));
    CHECK(back.config_yaml == record.config_yaml);
    CHECK(back.command == record.command);
    CHECK(back.start_time == record.start_time);
    CHECK(back.hosts == record.hosts);
    CHECK(back.environment.at("mpi") == "Some MPI 4.1");
    CHECK(back.environment.at("hosts") == "alpha,beta");
    CHECK(back.wire_axes == record.wire_axes);
    CHECK(back.model_flops == 1e21);
    CHECK(back.hardware_flops == 2e21);
    CHECK(back.exit_code == 0);
    CHECK(back.complete);
    REQUIRE(back.evaluations.size() == 1);
    CHECK(back.evaluations[0].loss == 5.125);
    CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("numbers that are none of bytes, or cannot be added up, are refused") {
    for (const std::int64_t wrong : {std::int64_t{-2}, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max() / 4}) {
        const TemporaryDirectory directory;
        RunRecord record = sample_record();
        record.wire_sent[1] = wrong;
        RecordWriter writer(directory.path());
        writer.write(record);
        const std::string said = message_of([&] { read_record(writer.path()); }, Exit::io_failed);
        CHECK_MESSAGE(said.find(fmt::format("/wire/sent has {} in it", wrong)) != std::string::npos, said);
    }
}

TEST_CASE("an empty run, before anything was measured, is a whole record") {
    const TemporaryDirectory directory;
    RunRecord record;
    record.coordinates = {{0, 0, 0, 0}};
    record.hosts = {"alpha"};
    RecordWriter writer(directory.path());
    writer.write(record);
    const RunRecord back = read_record(writer.path());
    CHECK(back.steps.empty());
    CHECK(back.exit_code == RunRecord::still_running);
    CHECK(back.predicted_peak == std::vector<std::int64_t>(RunRecord::peak_cells));
    CHECK(!back.complete);
}

TEST_CASE("every dataset has a unit and a description, by HDF5's own interface") {
    const TemporaryDirectory directory;
    RecordWriter writer(directory.path());
    writer.write(sample_record());
    const hid_t file = H5Fopen(writer.path().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    REQUIRE(file >= 0);
    Described found;
    CHECK(H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, visit, &found) >= 0);
    H5Fclose(file);
    CHECK(found.bare.empty());
    CHECK(found.paths.size() == 38);
    for (const char* path : {"/grid/coordinates", "/steps/data_hash", "/evaluation/seconds", "/time/seconds",
                             "/memory/measured_peak", "/wire/sent", "/copies/moved", "/flops/hardware"})
        CHECK(found.paths.contains(path));
}

TEST_CASE("a long run") {
    const TemporaryDirectory directory;
    const RunRecord record = sample_record(20000);  // 3.7 MiB of seconds
    RecordWriter writer(directory.path());
    writer.write(record);
    check_equal_tables(record, read_record(writer.path()));
}

TEST_CASE("a table of the wrong shape is the programmer's fault") {
    const TemporaryDirectory directory;
    RunRecord record = sample_record();
    record.measured_peak.pop_back();
    RecordWriter writer(directory.path());
    CHECK_THROWS_AS(writer.write(record), std::logic_error);
    CHECK_THROWS_AS(record.add_step({}, {1.0}, std::vector<double>(2 * record.move_cells())), std::logic_error);
    CHECK_THROWS_AS(record.add_step({}, std::vector<double>(2 * RunRecord::categories.size()), {1.0}), std::logic_error);
    CHECK(record.steps.size() == 3);
    CHECK(files_in(directory.path()) == 0);
}

TEST_CASE("a reader finds a whole record at every instant, and after a kill") {
    const TemporaryDirectory directory;
    std::size_t reads = 0;
    for (int round = 0; round < 8; ++round) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            RecordWriter writer(directory.path());
            for (std::int64_t steps = 1;; ++steps) writer.write(sample_record(steps));
        }
        const auto file = directory.path() / "run.h5";
        while (!std::filesystem::exists(file)) std::this_thread::yield();
        for (int n = 0; n < 5 + 3 * round; ++n, ++reads) CHECK_NOTHROW(read_record(file));
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        CHECK_NOTHROW(read_record(file));
    }
    MESSAGE(reads << " reads during writing");
}

TEST_CASE("a truncated or flipped record is refused with the reason, never misread") {
    const TemporaryDirectory directory;
    const RunRecord record = sample_record();
    RecordWriter writer(directory.path());
    writer.write(record);
    const auto bytes = read_file(writer.path());
    check_equal_tables(record, read_record(writer.path()));
    const auto damaged = directory.path() / "damaged.h5";
    for (const std::size_t size : {bytes.size() - 1, bytes.size() / 2, std::size_t{96}, std::size_t{1}, std::size_t{0}}) {
        replace_file(damaged, std::span(bytes).first(size));
        const std::string message = message_of([&] { read_record(damaged); }, Exit::io_failed);
        CHECK(message.find("damaged.h5") != std::string::npos);
    }
    CHECK(message_of([&] { read_record(directory.path() / "none.h5"); }, Exit::io_failed).find("No such file") !=
          std::string::npos);

    for (std::size_t at = 0; at < bytes.size(); at += 61) {
        auto flipped = bytes;
        flipped[at] ^= std::byte{0x10};
        std::ofstream(damaged, std::ios::binary)
            .write(reinterpret_cast<const char*>(flipped.data()), static_cast<std::streamsize>(flipped.size()));
        CHECK_THROWS_AS(read_record(damaged), Error);
    }
}

TEST_CASE("a failed write names file and reason, leaves the former record whole and no temporary file") {
    const TemporaryDirectory directory;
    RecordWriter writer(directory.path());
    writer.write(sample_record(1));
    rlimit former{};
    ::getrlimit(RLIMIT_FSIZE, &former);
    const rlimit small = {4096, former.rlim_max};
    std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = message_of([&] { writer.write(sample_record(2)); }, Exit::io_failed);
    ::setrlimit(RLIMIT_FSIZE, &former);
    CHECK(message.find("run.h5: cannot write: File too large") != std::string::npos);
    CHECK(files_in(directory.path()) == 1);
    CHECK(read_record(writer.path()).steps.size() == 1);
    writer.write(sample_record(2));
    CHECK(read_record(writer.path()).steps.size() == 2);

    std::filesystem::remove_all(directory.path());
    CHECK(message_of([&] { writer.write(sample_record(3)); }, Exit::io_failed).find("No such file or directory") !=
          std::string::npos);
}

TEST_CASE("what is no file is refused, not waited for") {
    const TemporaryDirectory directory;
    const auto pipe = directory.path() / "run.h5";
    REQUIRE(mkfifo(pipe.c_str(), 0666) == 0);
    const auto refusal = [](const std::filesystem::path& file) {
        try {
            read_file(file);
            return std::string("read");
        } catch (const Error& e) {
            CHECK(e.exit() == Exit::io_failed);
            return std::string(e.what());
        }
    };
    CHECK(refusal(pipe) == pipe.string() + ": cannot read: is not a regular file");
    CHECK(refusal(directory.path()) == directory.path().string() + ": cannot read: Is a directory");
}

TEST_CASE("writing is due at once, then only when it stays under 1 % of the time") {
    const TemporaryDirectory directory;
    RecordWriter writer(directory.path());
    const auto born = RecordWriter::Clock::now();
    CHECK(writer.due(born));
    writer.write(sample_record());
    CHECK(!writer.due(born));
    const auto after = [&](double seconds) {
        return born + std::chrono::duration_cast<RecordWriter::Clock::duration>(std::chrono::duration<double>(seconds));
    };
    CHECK(!writer.due(after(150 * writer.seconds_spent())));  // one more would be 2 of 150
    CHECK(writer.due(after(201 * writer.seconds_spent() + 1e-3)));
}
