#include "base/format.hpp"
#include "base/say.hpp"
#include "comm/agree.hpp"
#include "comm/bench.hpp"
#include "config/numbers.hpp"
#include "cpu/bench.hpp"
#include "storage/bench.hpp"
#include "train/commands.hpp"
#include "train/launcher.hpp"
#include "train/machine.hpp"

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace quadrille {
namespace {

// A measured figure, of whichever bench: the fields that do not apply are empty.
struct Row {
    std::string name, algorithm, precision, shape;
    std::int64_t ranks = 1, threads = 1, bytes = 0;  // threads: of the OpenMP team of a rank
    double seconds = 0, rate = 0;
    std::string unit;
};

Row row_of(const BenchRow& r) { return {r.name, "", r.precision, r.shape, 1, omp_get_max_threads(), 0, r.seconds, r.rate, r.unit}; }
Row row_of(const CollectiveRow& r) { return {r.name, r.algorithm, "", "", r.ranks, omp_get_max_threads(), r.bytes, r.seconds, r.rate, r.unit}; }
Row row_of(const StorageRow& r) { return {r.name, r.algorithm, "", "", 1, 1, r.bytes, r.seconds, r.rate, r.unit}; }

std::string json(const std::vector<Row>& rows) {
    const std::string machine = machine_name();
    std::string s = "[";
    for (const Row& r : rows) {
        s += fmt::format("{}\n{{\"name\": \"{}\", ", s.size() > 1 ? "," : "", r.name);
        s += r.algorithm.empty() ? fmt::format("\"precision\": \"{}\", ", r.precision) : fmt::format("\"algorithm\": \"{}\", ", r.algorithm);
        s += fmt::format("\"machine\": \"{}\", \"ranks\": {}, ", machine, r.ranks);
        s += r.algorithm.empty() ? fmt::format("\"shape\": \"{}\", ", r.shape) : fmt::format("\"bytes\": {}, ", r.bytes);
        s += fmt::format("\"threads\": {}, \"seconds\": {:.9g}, \"rate\": {:.9g}, \"unit\": \"{}\"}}", r.threads, r.seconds, r.rate, r.unit);
    }
    return s + "\n]\n";
}

// Prints each row as it is measured, and keeps the file of all of them up to date: who ends the program early has what was measured till then.
class Report {
  public:
    // `path`: of the JSON file; empty: none.
    explicit Report(std::string path) : path_(std::move(path)) {}

    void add(const Row& r) {
        rows_.push_back(r);
        write();
        const std::string who = fmt::format("{} x {}", format_number_of(r.ranks, "rank"), format_number_of(r.threads, "thread"));
        fmt::print("{:<16} {:<16} {:<20} {:<28} {:>12.3f} ms {:>10.2f} {}\n", r.name, r.algorithm.empty() ? r.precision : r.algorithm, who,
                   r.algorithm.empty() ? r.shape : fmt::format("{} bytes", r.bytes), 1e3 * r.seconds, r.rate, r.unit);
        std::fflush(stdout);
    }

    // Throws where the file cannot be written. `add` goes on all the same, for others may wait in a collective.
    void require_written() const {
        if (!write()) throw Error(Exit::io_failed, fmt::format("bench: {} cannot be written", path_));
    }

  private:
    bool write() const {
        if (path_.empty()) return true;
        std::ofstream file(path_);
        return static_cast<bool>(file << json(rows_) << std::flush);
    }

    std::string path_;
    std::vector<Row> rows_;
};

struct BenchArguments {
    std::string what = "all", json;
    StorageBench storage;
};

std::int64_t number(const std::string& name, const std::string& text, std::int64_t least, std::int64_t most) {
    const auto n = input::parse_bytes(text);
    const std::string problem = !n.problem.empty() ? n.problem : n.value < least || n.value > most ? "out of range" : "";
    if (!problem.empty())
        throw Error(Exit::refused, fmt::format("bench: {} is '{}', {}; allowed: {} to {}", name, text, problem, least, most));
    return n.value;
}

// What an input file says in its section `offload`.
bool storage_override(const std::string& word, StorageBench& bench) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return false;
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "offload.nvme_path") bench.directory = value;
    else if (key == "offload.block_size") bench.block_size = number(key, value, 512, std::int64_t{1} << 30);
    else if (key == "offload.queue_depth") bench.queue_depth = static_cast<int>(number(key, value, 1, 4096));
    else return false;
    return true;
}

BenchArguments parse(const Words& words) {
    BenchArguments a;
    bool named = false;
    const auto is_bench = [](const std::string& w) { return w == "gemm" || w == "memory" || w == "collectives" || w == "storage" || w == "all"; };
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& w = words[i];
        if (w == "--json" && i + 1 < words.size()) a.json = words[++i];
        else if (w == "--size" && i + 1 < words.size()) a.storage.bytes = number(w, words[++i], 1 << 20, std::int64_t{1} << 40) / 4096 * 4096;
        else if (!named && is_bench(w)) a.what = w, named = true;
        else if (!storage_override(w, a.storage)) throw Error(Exit::refused, fmt::format("bench: '{}' is not understood; {}", w, form("bench")));
    }
    return a;
}

std::vector<StorageRow> storage(const StorageBench& bench) {
    std::vector<std::string> notes;
    auto rows = bench_storage(bench, notes);
    for (const std::string& note : notes) say(note);
    return rows;
}

// On all ranks; the first tells.
void collectives(World& world, Report& report) {
    if (world.size() < 2) return;
    omp_set_num_threads(std::max(1, world.cpus() / std::max(1, world.cpu_sharers())));
    const std::vector<std::int64_t> sizes = {8, 4096, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
    for (const std::int64_t& size : sizes)
        for (const CollectiveRow& r : bench_collectives(world, {}, {&size, 1}))
            if (world.rank() == 0) report.add(row_of(r));
}

}  // namespace

int bench_command(int argc, char** argv, const Words& words) {
    const BenchArguments a = parse(words);
    Report report(a.json);
    if (a.what == "collectives" || a.what == "all") {
        World world(&argc, &argv);
        refuse_singletons(world);
        if (world.size() < 2 && a.what == "collectives")
            throw Error(Exit::refused, fmt::format("bench collectives: there is only 1 rank; {}", form("bench")));
        collectives(world, report);
        if (world.rank() != 0) return 0;
    } else if (launched_ranks() > 1) {  // it starts no MPI, so it cannot tell who else measures
        throw Error(Exit::refused, fmt::format("bench {} measures this one process: start it without a launcher, or on 1 rank", a.what));
    }
    report.require_written();  // before the long part: a path that cannot be written is known at once
    const EachRow each = [&report](const BenchRow& r) { report.add(row_of(r)); };
    if (a.what == "gemm" || a.what == "all") bench_gemm(each);
    if (a.what == "memory" || a.what == "all") bench_memory(each);
    if (a.what == "storage" || a.what == "all")
        for (const StorageRow& r : storage(a.storage)) report.add(row_of(r));
    report.require_written();
    return 0;
}

}  // namespace quadrille
