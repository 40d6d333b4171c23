#include "record/report.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "record/chain.hpp"
#include "record/hdf5_image.hpp"
#include "record/overlap_report.hpp"
#include "record/record_reader.hpp"
#include "record/replace_file.hpp"
#include "record/trace_report.hpp"

#include <yaml-cpp/yaml.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace quadrille {
namespace {

constexpr std::size_t device_tier = 0, host_tier = 1;  // of RunRecord::tiers
constexpr std::size_t n_categories = RunRecord::categories.size(), n_tiers = RunRecord::tiers.size(),
                      n_books = RunRecord::books.size();
using Table = std::vector<std::vector<std::string>>;

// The resolved input, read leniently: a record of another version may lack a key.
class Input {
  public:
    explicit Input(const std::string& yaml) {
        try {
            root_ = YAML::Load(yaml);
        } catch (const YAML::Exception&) {
            root_ = YAML::Node();
        }
    }
    bool has(const char* section) const { return root_.IsMap() && root_[section]; }
    std::string value(const char* section, const char* key) const {
        if (!root_.IsMap() || !root_[section] || !root_[section].IsMap()) return "?";
        const YAML::Node node = root_[section][key];
        return node && node.IsScalar() ? node.Scalar() : "?";
    }

  private:
    YAML::Node root_;
};

// One cell of a [rank, tier, book] table; what was not measured is zero.
std::int64_t peak_at(const std::vector<std::int64_t>& peaks, std::int64_t rank, std::size_t tier, std::size_t book) {
    return peaks.empty() ? 0 : peaks[static_cast<std::size_t>(rank) * RunRecord::peak_cells + tier * n_books + book];
}

std::int64_t tier_peak(const std::vector<std::int64_t>& peaks, std::int64_t rank, std::size_t tier) {
    std::int64_t bytes = 0;
    for (std::size_t book = 0; book < n_books; ++book) bytes += peak_at(peaks, rank, tier, book);
    return bytes;
}

bool any(const std::vector<std::int64_t>& values) {
    return std::any_of(values.begin(), values.end(), [](std::int64_t v) { return v != 0; });
}

// The rank whose tier peaks highest, by what was measured or, before that, predicted.
std::int64_t fullest_rank(const RunRecord& record, std::size_t tier) {
    const auto& peaks = any(record.measured_peak) ? record.measured_peak : record.predicted_peak;
    std::int64_t fullest = 0;
    for (std::int64_t rank = 1; rank < record.ranks(); ++rank)
        if (tier_peak(peaks, rank, tier) > tier_peak(peaks, fullest, tier)) fullest = rank;
    return fullest;
}

std::string agreement(const RunRecord& record) {
    if (!any(record.measured_peak)) return "  not measured\n";
    std::int64_t equal = 0;
    for (std::int64_t rank = 0; rank < record.ranks(); ++rank) {
        bool same = true;
        for (std::size_t tier = 0; tier < n_tiers; ++tier)
            for (std::size_t book = 0; book < n_books; ++book)
                same =
                    same && peak_at(record.predicted_peak, rank, tier, book) == peak_at(record.measured_peak, rank, tier, book);
        equal += same;
    }
    if (equal == record.ranks())
        return fmt::format("  predicted = measured on {} of {}\n", equal, format_number_of(equal, "rank"));
    return fmt::format("  predicted and measured are equal on {} of {} ranks only\n", equal, record.ranks());
}

// The five books of one rank's tier, and their sum.
std::string tier_table(const RunRecord& record, std::int64_t rank, std::size_t tier) {
    const std::int64_t predicted = tier_peak(record.predicted_peak, rank, tier);
    const std::int64_t measured = tier_peak(record.measured_peak, rank, tier);
    Table rows = {{std::string(RunRecord::tiers[tier]), "predicted", "measured", "share"}};
    for (std::size_t book = 0; book < n_books; ++book) {
        const std::int64_t p = peak_at(record.predicted_peak, rank, tier, book),
                           m = peak_at(record.measured_peak, rank, tier, book);
        rows.push_back({std::string(RunRecord::books[book]), format_bytes(p), format_bytes(m),
                        format_percent(static_cast<double>(std::max(p, m)), static_cast<double>(std::max(predicted, measured)))});
    }
    rows.push_back({"peak", format_bytes(predicted), format_bytes(measured), ""});
    return format_table(rows);
}

std::string loss_lines(const RunRecord& record) {
    if (record.steps.empty()) return "";
    const StepRow &first = record.steps.front(), &last = record.steps.back();
    std::string text =
        fmt::format("  loss       {:.6f} at step {}, {:.6f} at step {}\n", first.loss, first.step, last.loss, last.step);
    if (!record.evaluations.empty())
        text +=
            fmt::format("  held out   {:.6f} after step {}, {}\n", record.evaluations.back().loss, record.evaluations.back().step,
                        format_number_of(static_cast<std::int64_t>(record.evaluations.size()), "evaluation"));
    return text;
}

std::string speed_line(const RunRecord& record) {
    const auto& names = RunRecord::categories;
    const auto saving = static_cast<std::size_t>(std::find(names.begin(), names.end(), "checkpoint") - names.begin());
    const std::size_t of_step = record.coordinates.size() * n_categories;
    double seconds = 0, tokens = 0, saves = 0;
    for (std::size_t i = 0; i < record.steps.size(); ++i) {
        seconds += record.steps[i].seconds;
        tokens += static_cast<double>(record.steps[i].tokens);
        saves += record.time_seconds[i * of_step + saving];  // rank 0's, as the step's seconds are
    }
    if (seconds <= 0) return "";
    const double steps = static_cast<double>(record.steps.size());
    return fmt::format("  speed      {} tokens/s, {} a step, {} of the model, {} of the hardware{}\n",
                       format_count(tokens / seconds), format_seconds(seconds / steps),
                       format_count(record.model_flops * steps / seconds, "flop/s"),
                       format_count(record.hardware_flops * steps / seconds, "flop/s"),
                       saves > 0 ? fmt::format("; {} of saves among it, which the console's speed leaves out", format_seconds(saves)) : "");
}

std::string outcome(const RunRecord& record, const Input& input) {
    const std::string end = record.exit_code == RunRecord::still_running ? "running, or killed before it could say"
                                                                         : fmt::format("exit code {}", record.exit_code);
    // What a run that did not end well has done since the last write is not known here.
    return fmt::format("  steps      {} of {}{}, {}, {}\n", record.steps.empty() ? 0 : record.steps.back().step,
                       input.value("train", "steps"), record.complete ? "" : " recorded", record.complete ? "complete" : "not complete", end);
}

// Of the largest process: what it has reserved, what it maps of others, and the rest.
std::string process_line(const RunRecord& record) {
    if (!any(record.process_peak)) return "";
    const auto largest = std::max_element(record.process_peak.begin(), record.process_peak.end());
    std::string text = fmt::format("  largest process, by the operating system: {}\n", format_bytes(*largest));
    const auto rank = static_cast<std::size_t>(largest - record.process_peak.begin());
    const std::int64_t shared = rank < record.shared.size() ? record.shared[rank] : 0;
    std::int64_t reserved = 0, huge = 0;
    bool told = true;
    for (const std::size_t tier : {device_tier, host_tier}) {
        const auto cell = rank * n_tiers + tier;
        if (cell >= std::min(record.reserved.size(), record.huge_pages.size()) || record.reserved[cell] == 0) continue;
        reserved += record.reserved[cell];
        told = told && record.huge_pages[cell] != RunRecord::not_told;
        huge += record.huge_pages[cell];
    }
    if (reserved == 0) return text;
    text += fmt::format("    reserved at the start: {}", format_bytes(reserved));
    if (told) text += fmt::format(", {} of it in huge pages", format_percent(static_cast<double>(huge), static_cast<double>(reserved)));
    if (shared > 0) text += fmt::format("\n    mapped of other ranks' memory: {}", format_bytes(shared));
    if (*largest >= reserved + shared)
        text += fmt::format("\n    beside that: {} (MPI, HDF5, oneDNN, the program, batches read ahead)", format_bytes(*largest - reserved - shared));
    return text + "\n";
}

}  // namespace

std::string memory_ledger(const RunRecord& record) {
    std::string text;
    for (std::size_t tier = 0; tier < n_tiers && record.ranks() > 0; ++tier) {
        const std::int64_t rank = fullest_rank(record, tier);
        if (tier_peak(record.predicted_peak, rank, tier) == 0 && tier_peak(record.measured_peak, rank, tier) == 0) continue;
        text += fmt::format("memory at the {}'s high-water mark, rank {} (the fullest)\n{}", RunRecord::tiers[tier], rank,
                            tier_table(record, rank, tier));
    }
    if (text.empty()) return "memory: nothing predicted and nothing measured\n";
    text += agreement(record);
    return text + process_line(record);
}

std::string time_ledger(const RunRecord& record) {
    const std::size_t n = record.coordinates.size();
    if (record.steps.empty() || n == 0) return "time: no step was recorded (the record is written at log intervals, output.log_interval)\n";
    std::vector<std::vector<double>> seconds(n_categories, std::vector<double>(n));  // [category][rank]
    for (std::size_t i = 0; i < record.time_seconds.size(); ++i)
        seconds[i % n_categories][i / n_categories % n] += record.time_seconds[i];
    const auto mean = [n](const std::vector<double>& of) {
        return std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(n);
    };
    double whole = 0;
    for (const auto& of : seconds) whole += mean(of);
    Table rows = {{"", "mean", "share", "most", "on rank"}};
    for (std::size_t c = 0; c < n_categories; ++c) {
        const auto most = std::max_element(seconds[c].begin(), seconds[c].end());
        if (*most <= 0) continue;
        rows.push_back({std::string(RunRecord::categories[c]), format_seconds(mean(seconds[c])),
                        format_percent(mean(seconds[c]), whole), format_seconds(*most),
                        std::to_string(most - seconds[c].begin())});
    }
    rows.push_back({"wall clock", format_seconds(whole), format_percent(whole, whole), "", ""});
    return fmt::format("time of {} on {}\n{}", format_number_of(static_cast<std::int64_t>(record.steps.size()), "step"),
                       format_number_of(record.ranks(), "rank"), format_table(rows));
}

// Bytes per step of the whole job from [rank, name] tables; names with none are left out.
std::string bytes_ledger(std::string_view title, const char* did, std::span<const std::string> names, const std::vector<std::int64_t>& predicted,
                         const std::vector<std::int64_t>& measured) {
    Table rows = {{"", "predicted", did}};
    for (std::size_t a = 0; a < names.size(); ++a) {
        const auto sum = [&](const std::vector<std::int64_t>& of) {
            std::int64_t all = 0;
            for (std::size_t i = a; i < of.size(); i += names.size()) all += of[i];
            return all;
        };
        if (sum(predicted) == 0 && sum(measured) == 0) continue;
        rows.push_back({names[a], format_bytes(sum(predicted)), format_bytes(sum(measured))});
    }
    return rows.size() == 1 ? "" : fmt::format("{}, per step and job\n{}", title, format_table(rows));
}

std::string wire_ledger(const RunRecord& r) {
    const auto sum = [](const std::vector<std::int64_t>& of) { return std::accumulate(of.begin(), of.end(), std::int64_t{0}); };
    const std::string uncompressed = r.wire_uncompressed == r.wire_predicted || r.wire_uncompressed.empty()
                                         ? ""
                                         : fmt::format("  gradients are compressed: without, {} in all in place of {}\n",
                                                       format_bytes(sum(r.wire_uncompressed)), format_bytes(sum(r.wire_predicted)));
    return bytes_ledger("bytes on the wire", r.wire_estimated ? "estimated" : "sent", r.wire_axes, r.wire_predicted, r.wire_sent) + uncompressed;
}

std::string copies_ledger(const RunRecord& r) {
    const std::vector<std::string> queues(RunRecord::copy_queues.begin(), RunRecord::copy_queues.end());
    return bytes_ledger("bytes between tiers", "moved", queues, r.copies_predicted, r.copies_moved);
}

std::string model_line(const std::string& config_yaml) {
    const Input input(config_yaml);
    const auto model = [&](const char* key) { return input.value("model", key); };
    const std::string precision = input.has("train") ? input.value("train", "precision") : "";  // no run, no precision: an import
    return fmt::format("  model      {} layers, hidden {}, {} heads ({} key-value), ffn {}, vocabulary {}, sequence {}{}\n",
                       model("num_layers"), model("hidden_size"), model("num_attention_heads"), model("num_key_value_heads"),
                       model("ffn_hidden_size"), model("vocab_size"), model("seq_length"), precision.empty() ? "" : ", " + precision);
}

std::string run_summary(const RunRecord& record) {
    const Input input(record.config_yaml);
    const auto grid = [&](const char* key) { return input.value("grid", key); };
    const std::set<std::string> hosts(record.hosts.begin(), record.hosts.end());
    std::string text =
        fmt::format("  started    {} on {}, {} ({}{})\n", record.start_time, format_number_of(record.ranks(), "rank"),
                    format_number_of(static_cast<std::int64_t>(hosts.size()), "host"), hosts.empty() ? "" : *hosts.begin(),
                    hosts.size() > 1 ? ", ..." : "");
    text += fmt::format("  command    {}\n", record.command);
    if (!record.continues.empty()) text += fmt::format("  continues  {}, after step {}\n", record.continues, record.continues_after);
    text += model_line(record.config_yaml);
    text += fmt::format("  grid       dp {}, tp {}, pp {}, sp {}\n", grid("dp"), grid("tp"), grid("pp"), grid("sp"));
    text += outcome(record, input) + loss_lines(record) + speed_line(record);
    for (const std::string& ledger : {time_ledger(record), memory_ledger(record), wire_ledger(record), overlap_ledger(record), copies_ledger(record)})
        if (!ledger.empty()) text += "\n" + ledger;
    return text;
}

std::string inspect_record(const std::filesystem::path& path) {
    std::error_code ignored;
    const std::filesystem::path file = std::filesystem::is_directory(path, ignored) ? newest_record(path) : path;
    if (!std::filesystem::exists(file, ignored))
        throw Error(Exit::refused, fmt::format("inspect: {}: there is no run record here", file.string()));
    if (const Hdf5ImageReader image(file.string(), read_file(file)); image.exists("/trace"))
        return fmt::format("{}: {}", file.string(), trace_summary(image));
    RecordOrigin origin;
    const RunRecord record = read_record(file, &origin);
    return fmt::format("{}: {}, written by quadrille {} ({})\n", file.string(), origin.schema, origin.version,
                       origin.git_commit) +
           run_summary(record);
}

}  // namespace quadrille
