// Small texts that the program finds on a machine: measured times of collectives, and what the system says of memory.
//
// An input is a letter and the text: 't' times, in YAML or JSON; 'g' a process's cgroups, in folders that hold what follows the first line "--";
// all else is a file of keys and numbers, as /proc/meminfo is.
#include "fuzz/fuzz.hpp"

#include "base/proc.hpp"
#include "train/collective_times.hpp"
#include "train/machine.hpp"

#include <cmath>

using namespace quadrille;
using namespace quadrille::fuzz;

namespace {

void read_times(const std::string& text) {
    for (const char* machine : {"", "2 x Ours"})
        takes([&] {
            const auto times = parse_collective_times(text, "times.json", machine);
            expect(!times.empty(), "without a row the file is refused", text);
            for (const MeasuredTime& t : times)
                expect(t.ranks >= 1 && t.bytes >= 1 && t.seconds > 0 && std::isfinite(t.seconds), "a row says how long so many bytes took", text);
        });
}

void read_groups(const std::filesystem::path& folder, const std::string& text) {
    const std::string divider = "\n--\n";
    const std::size_t end = text.find(divider);
    const std::string memory = end == std::string::npos ? "" : text.substr(end + divider.size());
    for (const char* file : {"memory.max", "memory.current", "memory.stat"}) write(folder / "root" / file, memory);
    const auto left = cgroup_left(write(folder / "membership", text.substr(0, end)), folder / "root");
    expect(!left || *left >= 0, "a group allows 0 bytes more, or some", text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const TemporaryDirectory folder;
    std::filesystem::create_directory(folder.path() / "root");
    Bytes input(data, size);
    const char letter = static_cast<char>(input.byte());
    const std::string text(input.rest());
    if (letter == 't') read_times(text);
    else if (letter == 'g') read_groups(folder.path(), text);
    else number_after(write(folder.path() / "numbers", text), "MemAvailable:");
    return 0;
}
