// The input file and the overrides: bytes become all their problems, or a Config whose text is read as the same Config again.
//
// An input is the file's text. Its lines that begin with "#!", comments to YAML, are the rest of the call: "#!section.key=value" is an override, and
// "#!job 4 2 8 1 1073741824 0" a job's ranks, ranks per node, CPUs, sharers, memory and whether it is a plan.
#include "fuzz/fuzz.hpp"

#include "config/difference.hpp"
#include "config/keys.hpp"
#include "config/load.hpp"
#include "record/report.hpp"

#include <cctype>
#include <sstream>

using namespace quadrille;
using namespace quadrille::fuzz;

namespace {

constexpr std::string_view mark = "#!", job_mark = "job ", format_key = "data.format";

struct Call {
    std::vector<std::string> overrides;
    Job job;
};

Job job_of(const std::string& numbers) {
    Job job;
    std::int64_t per_node = 1, cpus = 0, sharers = 1, planning = 1;
    std::istringstream(numbers) >> job.ranks >> per_node >> cpus >> sharers >> job.memory_available >> planning;
    job.ranks = std::clamp<std::int64_t>(job.ranks, 0, INT32_MAX);
    job.ranks_per_node = static_cast<int>(std::clamp<std::int64_t>(per_node, 1, 4096));
    job.cpus = static_cast<int>(std::clamp<std::int64_t>(cpus, 0, 4096));
    job.cpu_sharers = static_cast<int>(std::clamp<std::int64_t>(sharers, 1, job.ranks_per_node));
    job.memory_available = std::clamp<std::int64_t>(job.memory_available, 0, std::int64_t{1} << 50);
    job.planning = planning != 0;
    return job;
}

// Whether a glob of the text might walk over this machine's disks instead of the fuzzer's folder: it may begin with a slash or step out.
bool looks_elsewhere(std::string_view text) {
    constexpr std::string_view inside_a_path = "/*?]_.-";
    if (text.find_first_of("*?[") == std::string_view::npos) return false;
    if (text.find("..") != std::string_view::npos || text.find('\\') != std::string_view::npos) return true;
    for (std::size_t slash = text.find('/'); slash != std::string_view::npos; slash = text.find('/', slash + 1)) {
        const char before = slash == 0 ? ' ' : text[slash - 1];
        if (std::isalnum(static_cast<unsigned char>(before)) == 0 && inside_a_path.find(before) == std::string_view::npos) return true;
    }
    return false;
}

Call call_of(const std::string& text) {
    Call call;
    const bool elsewhere = looks_elsewhere(text);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(mark)) continue;
        const std::string rest = line.substr(mark.size());
        if (rest.starts_with(job_mark)) call.job = job_of(rest.substr(job_mark.size()));
        else if (!elsewhere || !rest.starts_with(format_key)) call.overrides.push_back(rest);
    }
    if (elsewhere) call.overrides.push_back(std::string(format_key) + "=synthetic");
    return call;
}

// A folder with files of each kind that data.train may name, which is the working directory too.
class Inputs {
  public:
    Inputs() {
        std::filesystem::create_directories(folder_.path() / "src/deep");
        for (const char* name : {"a.txt", "b.txt", "c.bin", "c.idx", "src/main.cpp", "src/deep/more.cpp"}) write(folder_.path() / name, "words");
        std::filesystem::current_path(folder_.path());
    }
    ~Inputs() { std::filesystem::current_path("/"); }
    std::string file(std::string_view text) const { return write(folder_.path() / "in.yaml", text); }

  private:
    TemporaryDirectory folder_;
};

// The text that a checkpoint or a record holds as its input, whoever wrote it.
void read_former(const std::string& text, const Config& now) {
    takes([&] { differences(text, now); });
    takes([&] { without_adapters(text); });
    takes([&] { parse_resolved(text); });
    model_line(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Inputs inputs;
    const std::string text(reinterpret_cast<const char*>(data), size);
    const Call call = call_of(text);
    Config config;
    std::vector<std::string> warnings;
    if (takes([&] { config = load_config(inputs.file(text), call.overrides, call.job, &warnings); })) {
        const std::string resolved = to_yaml(config);
        expect(parse_resolved(resolved) == config, "parse_resolved gives the Config of a text that to_yaml made", resolved);
        const Config again = load_config(inputs.file(resolved), {}, call.job);
        expect(again == config, "load_config of the resolved text gives an equal Config", resolved);
        expect(to_yaml(again) == resolved, "whose text is identical", resolved);
        expect(differences(resolved, config).empty(), "an input does not differ from itself", resolved);
        in_short(config);
    }
    read_former(text, config);
    return 0;
}

namespace {

std::string value_for(const input::Key& key, std::minstd_rand& random) {
    std::vector<std::string> values = {key.fallback, key.word, "", "~", "[]", "{}", "[1, 2]", "{a: b}", "true", "-1", "0", "1e3", "5e-324", "1KiB",
                                       "9223372036854775807", "\"\\x00\"", "\"\\uD800\"", "'a b'", "a/NAME", "c", "*.txt", "[&a x, *a]", "null"};
    values.insert(values.end(), key.choices.begin(), key.choices.end());
    values.insert(values.end(), key.later.begin(), key.later.end());
    for (const double bound : {key.range.least, key.range.most})
        for (const double near : {bound - 1, bound, bound + 1}) values.push_back(fmt::format("{}", near));
    for (int n = 1; n <= 8; ++n) values.push_back(std::to_string(n));  // these fit each other
    return values[random() % values.size()];
}

// The text with an override of one key, in place of the one it had.
std::string with_override(const std::string& text, std::minstd_rand& random) {
    const auto& keys = input::keys();
    const input::Key& key = keys[random() % keys.size()];
    const std::string begin = std::string(mark) + key.path() + "=";
    std::string changed;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (!line.starts_with(begin)) changed += line + "\n";
    return random() % 8 == 0 ? changed : changed + begin + value_for(key, random) + "\n";
}

}  // namespace

// The table of keys is the dictionary: half of the changes are overrides that a user might write.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
    std::minstd_rand random(seed);
    if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, most);
    const std::string changed = with_override({reinterpret_cast<const char*>(data), size}, random);
    if (changed.size() > most) return LLVMFuzzerMutate(data, size, most);
    std::memcpy(data, changed.data(), changed.size());
    return changed.size();
}
