// What the cgroup files of both versions say of the memory that is left, from files of the test's own.
#include "train/machine.hpp"

#include "unit/record_sample.hpp"

#include <doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

using namespace quadrille;

namespace {

constexpr std::int64_t mib = 1 << 20;

struct Groups {
    TemporaryDirectory directory;
    void write(const std::string& path, const std::string& text) const {
        const auto file = directory.path() / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    std::optional<std::int64_t> left() const { return cgroup_left(directory.path() / "membership", directory.path() / "root"); }
};

}  // namespace

TEST_CASE_FIXTURE(Groups, "version 2: the tightest of the groups around the process binds, page cache counts as free") {
    CHECK(!left());
    write("membership", "0::/slurm/job/step\n");
    CHECK(!left());
    write("root/slurm/job/step/memory.max", "max\n");
    write("root/slurm/job/memory.max", std::to_string(100 * mib));
    write("root/slurm/job/memory.current", std::to_string(60 * mib));
    CHECK(left() == 40 * mib);
    write("root/slurm/job/memory.stat", "anon 1\nfile 99\ninactive_file 20971520\nactive_file 5242880\n");
    CHECK(left() == 65 * mib);
    write("root/slurm/memory.max", std::to_string(50 * mib));
    CHECK(left() == 50 * mib);
    write("root/slurm/memory.current", std::to_string(70 * mib));
    CHECK(left() == 0);
    write("membership", "0:://slurm//job/\n");  // not what systems write, and no way without an end
    CHECK(left() == 0);
}

TEST_CASE_FIXTURE(Groups, "version 1: the memory controller's line among the others; a huge limit is none") {
    write("membership", "9:name=systemd:/x\n4:cpu,memory:/docker/abc\n3:cpuset:/y\n");
    write("root/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(!left());
    write("root/memory/docker/abc/memory.limit_in_bytes", std::to_string(10 * mib));
    write("root/memory/docker/abc/memory.usage_in_bytes", std::to_string(4 * mib));
    write("root/memory/docker/abc/memory.stat", "cache 5\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
    CHECK(left() == 7 * mib);
}

TEST_CASE("the machine itself") {
    const std::int64_t all = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    CHECK(memory_available() > 0);
    CHECK(memory_available() <= all);
    // The peak grows by what is touched, and stays when it is given back.
    const std::int64_t before = process_peak();
    CHECK(std::vector<char>(static_cast<std::size_t>(before + 64 * mib), 'x').back() == 'x');
    CHECK(process_peak() >= before + 60 * mib);
    CHECK(process_peak() <= all);
}

TEST_CASE("a process's own limit, less what it has and what its threads' stacks will take") {
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_DATA, &before) == 0);
    constexpr std::int64_t bytes = std::int64_t{1} << 60;  // far above the terabytes that a sanitizer reserves
    const rlimit limit{static_cast<rlim_t>(bytes), before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
    const auto none = process_limit(0), four = process_limit(4);
    setrlimit(RLIMIT_DATA, &before);
    REQUIRE(none);
    CHECK(none->name == "ulimit -d");
    CHECK(none->left < bytes);
    CHECK(none->left > bytes - (bytes >> 8));
    CHECK(four->left <= none->left - 4 * mib);
}
