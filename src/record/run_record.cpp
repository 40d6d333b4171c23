#include "record/run_record.hpp"

#include "base/error.hpp"

#include <sys/utsname.h>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

extern char** environ;

namespace quadrille {
namespace {

std::string cpu_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name"))
            if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
    return "unknown";
}

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

}  // namespace

void RunRecord::add_step(const StepRow& row, const std::vector<double>& seconds, const std::vector<double>& moves) {
    const std::size_t cells = coordinates.size() * categories.size();
    require(seconds.size() == cells, fmt::format("a step has {} seconds for {} cells of the time ledger", seconds.size(), cells));
    const std::size_t axes = wire_axes.size(), moved = coordinates.size() * move_cells();
    require(moves.size() == moved, fmt::format("a step has {} seconds for {} cells of its moves", moves.size(), moved));
    steps.push_back(row);
    time_seconds.insert(time_seconds.end(), seconds.begin(), seconds.end());
    for (const double* rank = moves.data(); rank != moves.data() + moved; rank += move_cells()) {
        wire_busy.insert(wire_busy.end(), rank, rank + axes);
        wire_exposed.insert(wire_exposed.end(), rank + axes, rank + 2 * axes);
        compute_beside.push_back(rank[2 * axes]);
        compute_alone.push_back(rank[2 * axes + 1]);
    }
}

void RunRecord::add_to_last_step(std::size_t category, const std::vector<double>& seconds) {
    require(seconds.size() == coordinates.size() && category < categories.size(), "seconds of each rank, in a category");
    if (steps.empty()) return;
    const std::size_t first = time_seconds.size() - coordinates.size() * categories.size();
    for (std::size_t rank = 0; rank < seconds.size(); ++rank) time_seconds[first + rank * categories.size() + category] += seconds[rank];
    steps.back().seconds += seconds[0];
}

void RunRecord::check_shapes() const {
    const auto sized = [](const char* table, std::size_t has, std::size_t needs, bool may_be_empty) {
        if (!(may_be_empty && has == 0))
            require(has == needs, fmt::format("the record's {} has {} entries and not {}", table, has, needs));
    };
    const std::size_t n = coordinates.size();
    sized("hosts", hosts.size(), n, false);
    sized("time_seconds", time_seconds.size(), steps.size() * n * categories.size(), false);
    sized("wire_busy", wire_busy.size(), steps.size() * n * wire_axes.size(), false);
    sized("wire_exposed", wire_exposed.size(), steps.size() * n * wire_axes.size(), false);
    sized("compute_beside", compute_beside.size(), steps.size() * n, false);
    sized("compute_alone", compute_alone.size(), steps.size() * n, false);
    sized("predicted_peak", predicted_peak.size(), n * peak_cells, true);
    sized("measured_peak", measured_peak.size(), n * peak_cells, true);
    sized("reserved", reserved.size(), n * tiers.size(), true);
    sized("huge_pages", huge_pages.size(), n * tiers.size(), true);
    sized("shared", shared.size(), n, true);
    sized("process_peak", process_peak.size(), n, true);
    sized("wire_predicted", wire_predicted.size(), n * wire_axes.size(), true);
    sized("wire_uncompressed", wire_uncompressed.size(), n * wire_axes.size(), true);
    sized("wire_sent", wire_sent.size(), n * wire_axes.size(), true);
    sized("copies_predicted", copies_predicted.size(), n * copy_queues.size(), true);
    sized("copies_moved", copies_moved.size(), n * copy_queues.size(), true);
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

std::map<std::string, std::string> host_environment() {
    std::map<std::string, std::string> found = {{"cpu", cpu_name()},
                                                {"cpus", std::to_string(std::thread::hardware_concurrency())}};
    utsname system{};
    if (uname(&system) == 0) found["kernel"] = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
    for (char** entry = environ; *entry; ++entry) {
        const std::string text = *entry;
        const auto equals = text.find('=');
        const std::string name = text.substr(0, equals);
        // Job variables only: a whole environment may hold secrets.
        const bool wanted = name.starts_with("SLURM_JOB_") || name == "SLURM_NTASKS" || name == "SLURM_NNODES" ||
                            name == "SLURM_CPUS_PER_TASK" || name == "PBS_JOBID" || name.starts_with("OMP_");
        if (wanted && equals != std::string::npos) found[lower(name)] = text.substr(equals + 1);
    }
    return found;
}

}  // namespace quadrille
