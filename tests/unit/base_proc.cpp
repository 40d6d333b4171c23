// Numbers by their keys in files such as the system's.
#include "base/proc.hpp"

#include "unit/temporary_directory.hpp"

#include <doctest.h>

#include <fstream>

using namespace quadrille;

TEST_CASE("the number after a key; none where there is no such line or file") {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "smaps_rollup";
    std::ofstream(file) << "5594e000-7ffd2000 ---p 00000000 00:00 0   [rollup]\n"
                           "RssAnon: no number\nRss:   1640 kB\nAnon:\nAnonHugePages:  9000000000 kB\n";
    CHECK(number_after(file, "AnonHugePages:") == 9000000000);
    CHECK(number_after(file, "Rss:") == 1640);
    CHECK(!number_after(file, "Rss"));
    CHECK(!number_after(file, "RssAnon:"));
    CHECK(!number_after(file, "Anon:"));
    CHECK(!number_after(directory.path() / "absent", "Rss:"));
}
