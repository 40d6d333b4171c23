#include "comm/bench.hpp"
#include "config/numbers.hpp"
#include "cpu/bench.hpp"
#include "storage/bench.hpp"
#include "train/agree.hpp"
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
    std::int64_t ranks = 1, bytes = 0;
    double seconds = 0, rate = 0;
    std::string unit;
};

void append(std::vector<Row>& rows, const std::vector<BenchRow>& more) {
    for (const BenchRow& r : more) rows.push_back({r.name, "", r.precision, r.shape, 1, 0, r.seconds, r.rate, r.unit});
}

void append(std::vector<Row>& rows, const std::vector<CollectiveRow>& more) {
    for (const CollectiveRow& r : more) rows.push_back({r.name, r.algorithm, "", "", r.ranks, r.bytes, r.seconds, r.rate, r.unit});
}

void append(std::vector<Row>& rows, const std::vector<StorageRow>& more) {
    for (const StorageRow& r : more) rows.push_back({r.name, r.algorithm, "", "", 1, r.bytes, r.seconds, r.rate, r.unit});
}

std::string json(const std::vector<Row>& rows) {
    const std::string machine = machine_name();
    std::string s = "[";
    for (const Row& r : rows) {
        s += fmt::format("{}\n{{\"name\": \"{}\", ", s.size() > 1 ? "," : "", r.name);
        s += r.algorithm.empty() ? fmt::format("\"precision\": \"{}\", ", r.precision) : fmt::format("\"algorithm\": \"{}\", ", r.algorithm);
        s += fmt::format("\"machine\": \"{}\", \"ranks\": {}, ", machine, r.ranks);
        s += r.algorithm.empty() ? fmt::format("\"shape\": \"{}\", ", r.shape) : fmt::format("\"bytes\": {}, ", r.bytes);
        s += fmt::format("\"seconds\": {:.9g}, \"rate\": {:.9g}, \"unit\": \"{}\"}}", r.seconds, r.rate, r.unit);
    }
    return s + "\n]\n";
}

void print(const std::vector<Row>& rows) {
    for (const Row& r : rows)
        fmt::print("{:<16} {:<16} {:>2} ranks  {:<28} {:>12.3f} ms {:>10.2f} {}\n", r.name, r.algorithm.empty() ? r.precision : r.algorithm, r.ranks,
                   r.algorithm.empty() ? r.shape : fmt::format("{} bytes", r.bytes), 1e3 * r.seconds, r.rate, r.unit);
}

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
    for (const std::string& note : notes) fmt::print(stderr, "quadrille: {}\n", note);
    return rows;
}

std::vector<Row> collectives(World& world) {
    std::vector<Row> rows;
    if (world.size() < 2) return rows;
    omp_set_num_threads(std::max(1, world.cpus() / std::max(1, world.cpu_sharers())));
    const std::vector<std::int64_t> sizes = {8, 4096, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
    append(rows, bench_collectives(world, {}, sizes));
    return rows;
}

void write_json(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    if (!(file << text << std::flush)) throw Error(Exit::io_failed, fmt::format("bench: {} cannot be written", path));
}

}  // namespace

int bench_command(int argc, char** argv, const Words& words) {
    const BenchArguments a = parse(words);
    std::vector<Row> rows;
    if (a.what == "collectives" || a.what == "all") {
        World world(&argc, &argv);
        refuse_singletons(world);
        if (world.size() < 2 && a.what == "collectives")
            throw Error(Exit::refused, fmt::format("bench collectives: there is only 1 rank; {}", form("bench")));
        rows = collectives(world);
        if (world.rank() != 0) return 0;
    } else if (launched_ranks() > 1) {  // it starts no MPI, so it cannot tell who else measures
        throw Error(Exit::refused, fmt::format("bench {} measures this one process: start it without a launcher, or on 1 rank", a.what));
    }
    if (!a.json.empty()) write_json(a.json, json(rows));  // before the long part: a path that cannot be written is known at once
    if (a.what == "gemm" || a.what == "all") append(rows, bench_gemm());
    if (a.what == "memory" || a.what == "all") append(rows, bench_memory());
    if (a.what == "storage" || a.what == "all") append(rows, storage(a.storage));
    print(rows);
    if (!a.json.empty()) write_json(a.json, json(rows));
    return 0;
}

}  // namespace quadrille
