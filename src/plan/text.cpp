// The plan as text and as JSON.
#include "plan/plan.hpp"

#include "base/format.hpp"
#include "ir/print.hpp"
#include "ir/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace quadrille {
namespace {

// As papers count: powers of ten.
std::string decimal(std::int64_t n) {
    const char* unit[] = {"B", "kB", "MB", "GB", "TB"};
    double x = static_cast<double>(n);
    std::size_t u = 0;
    for (; x >= 1000 && u < 4; ++u) x /= 1000;
    return fmt::format("{:.1f} {}", x, unit[u]);
}

// Of the rank that holds most.
std::string states_line(const Plan& plan) {
    const auto total = [](const StateBytes& s) { return s.weights + s.masters + s.moments + s.residuals + s.gradients; };
    StateBytes most;
    std::int64_t parameters = 1;
    for (const ProgramPlan& p : plan.programs) {
        if (total(p.states) <= total(most)) continue;
        most = p.states;
        parameters = p.parameters;
    }
    const std::string residuals = most.residuals > 0 ? fmt::format(" residuals {},", decimal(most.residuals)) : "";
    return fmt::format("model states  {} on the fullest rank: weights {}, masters {}, moments {},{} gradients {}; "
                       "{:.2f} bytes for each parameter that it computes with\n",
                       decimal(total(most)), decimal(most.weights), decimal(most.masters), decimal(most.moments), residuals, decimal(most.gradients),
                       static_cast<double>(total(most)) / static_cast<double>(parameters));
}

// One line per program, or one for a run of programs that need the same.
void ledger_lines(const Plan& plan, std::string& s) {
    static constexpr const char* columns = "  {:>4} {:>8} {:>9} {:>7}  {:>12} = {:>11} {:>11} {:>11} {:>11} {:>11} {:>10}\n";
    s += fmt::format(columns, "pp", "ranks", "ops", "layers", "device peak", "weights", "gradients", "optimizer", "activations", "buffers",
                     "packing");
    for (const ProgramPlan& p : plan.programs) {
        const TierPeak& d = p.peaks[0];
        const auto book = [&d](Book b) { return format_bytes(d.books[static_cast<std::size_t>(b)]); };
        s += fmt::format(columns, p.first[Axis::pp], p.count, p.operations, p.layers, format_bytes(d.arena), book(Book::weights),
                         book(Book::gradients), book(Book::optimizer), book(Book::activations), book(Book::buffers), format_bytes(d.packing));
        for (std::size_t t = 1; t < tier_count; ++t)
            if (p.peaks[t].arena > 0) s += fmt::format("       {} tier: {}\n", name_of(static_cast<Tier>(t)), format_bytes(p.peaks[t].arena));
    }
}

std::string json_map(const std::map<std::string, std::int64_t>& m) {
    std::string s = "{";
    for (const auto& [k, v] : m) s += fmt::format("{}\"{}\": {}", s.size() > 1 ? ", " : "", k, v);
    return s + "}";
}

// A line per program: bytes by name.
std::string bytes_lines(const Plan& plan, std::map<std::string, std::int64_t> ProgramPlan::*bytes) {
    std::string s;
    for (const ProgramPlan& p : plan.programs) {
        s += fmt::format("  pp {:>3}", p.first[Axis::pp]);
        if ((p.*bytes).empty()) s += "  none";
        for (const auto& [name, n] : p.*bytes) s += fmt::format("  {} {}", name, format_bytes(n));
        s += "\n";
    }
    return s;
}

// A text in quotes.
std::string json_text(const std::string& text) {
    std::string s = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') s += '\\';
        s += c == '\n' ? ' ' : c;
    }
    return s + '"';
}

std::string json_limit(std::int64_t bytes) { return bytes > 0 ? fmt::format("{}", bytes) : "null"; }

std::string json_program(const ProgramPlan& p) {
    std::string peaks, books, packing;
    for (std::size_t t = 0; t < tier_count; ++t) {
        const std::string_view tier = name_of(static_cast<Tier>(t));
        const char* comma = t ? ", " : "";
        peaks += fmt::format("{}\"{}\": {}", comma, tier, p.peaks[t].arena);
        packing += fmt::format("{}\"{}\": {}", comma, tier, p.peaks[t].packing);
        std::string entries;
        for (std::size_t b = 0; b < book_count; ++b)
            entries += fmt::format("{}\"{}\": {}", b ? ", " : "", name_of(static_cast<Book>(b)), p.peaks[t].books[b]);
        books += fmt::format("{}\"{}\": {{{}}}", comma, tier, entries);
    }
    // The first rank of a program stands at 0 on every axis but pp.
    return fmt::format("{{\"coordinate\": {{\"dp\": 0, \"tp\": 0, \"pp\": {}, \"sp\": 0}}, \"count\": {}, \"operations\": {}, "
                       "\"layers\": {}, \"peak_bytes\": {{{}}}, \"peak_op\": {}, \"books\": {{{}}}, \"packing\": {{{}}}, "
                       "\"states\": {{\"weights\": {}, \"masters\": {}, \"moments\": {}, \"residuals\": {}, \"gradients\": {}}}, "
                       "\"wire\": {}, \"uncompressed\": {}, \"copies\": {}}}",
                       p.first[Axis::pp], p.count, p.operations, p.layers, peaks, json_text(p.peak_op), books, packing, p.states.weights,
                       p.states.masters, p.states.moments, p.states.residuals, p.states.gradients, json_map(p.wire), json_map(p.uncompressed),
                       json_map(p.copies));
}

}  // namespace

std::string figures(const Plan& plan) {
    const std::string trained = plan.trained == plan.parameters ? "" : fmt::format(", {} of them trained ({:.3g} %)", plan.trained,
                                100 * static_cast<double>(plan.trained) / static_cast<double>(plan.parameters));
    std::string s = fmt::format("parameters  {}{}\nranks       {}\n", plan.parameters, trained, plan.ranks);
    s += fmt::format("FLOPs       {:.4g} model (attention not halved for causality), {:.4g} hardware, per step and job\n", plan.model_flops,
                     plan.hardware_flops);
    if (plan.recompute.granularity != "none")
        s += fmt::format("recompute   {}: {}{} saved at the device peak of the fullest rank, {:.4g} FLOPs added per step and job ({:.1f} %)\n",
                         plan.recompute.granularity, plan.recompute.bytes_saved < 0 ? "-" : "",
                         format_bytes(std::abs(plan.recompute.bytes_saved)), plan.recompute.flops_added,
                         100 * plan.recompute.flops_added / (plan.hardware_flops - plan.recompute.flops_added));
    s += fmt::format("pipeline    {}, {} microbatch{}, bubble {:.2f} % of the step (by the FLOPs of each chunk)\n", plan.schedule,
                     plan.microbatches, plan.microbatches == 1 ? "" : "es", 100 * plan.bubble_fraction);
    s += fmt::format("homes       {}\n", plan.homes);
    s += fmt::format("memory per rank, with scratch for device.threads {}\n", plan.threads);
    ledger_lines(plan, s);
    s += "  " + states_line(plan);
    s += "wire per rank and step (of each program's first rank)\n" + bytes_lines(plan, &ProgramPlan::wire);
    if (plan.staleness > 0)
        s += "staleness   1: an update uses the gradients of the step before, whose sums travel while this step computes; the first updates "
             "nothing\n";
    if (!plan.compression.empty())
        s += fmt::format("compression {}\n  without it the wire would carry\n{}"
                         "  the programs are proved under the assumption `lossy`: packets are taken for the gradients that they were made of\n",
                         plan.compression, bytes_lines(plan, &ProgramPlan::uncompressed));
    const auto copies = [](const ProgramPlan& p) { return !p.copies.empty(); };
    if (std::any_of(plan.programs.begin(), plan.programs.end(), copies))
        s += "copies between tiers per rank and step\n" + bytes_lines(plan, &ProgramPlan::copies);
    if (plan.orders.size() > 1) {
        s += "pipeline order (chunk, Forward | Backward | Input gradients | Weight gradients, microbatch)\n";
        for (std::size_t r = 0; r < plan.orders.size(); ++r) s += fmt::format("  pp {:>3}  {}\n", r, plan.orders[r]);
    }
    if (plan.memory_limit == 0 && plan.host_memory_limit == 0) return s + "no memory limit given (device.memory_limit)\n";
    std::string limits = plan.memory_limit > 0 ? format_bytes(plan.memory_limit) : "";
    if (plan.host_memory_limit > 0) limits += fmt::format("{}{} of host memory", limits.empty() ? "" : " and ", format_bytes(plan.host_memory_limit));
    if (plan.fits) return s + fmt::format("fits in {}\n", limits);
    return s + fmt::format("does not fit in {} per rank\n{}", limits, plan.shortfall);
}

std::string text(const Plan& plan) { return figures(plan) + (plan.fits ? "" : advice(plan.suggestions)); }

std::string advice(const std::vector<Suggestion>& suggestions) {
    std::string s;
    for (const Suggestion& x : suggestions) {
        s += fmt::format("{}  # device peak {}", x.change, format_bytes(x.peak_bytes[0]));
        for (std::size_t t = 1; t < tier_count; ++t)
            if (x.peak_bytes[t] > 0) s += fmt::format(", {} {}", name_of(static_cast<Tier>(t)), format_bytes(x.peak_bytes[t]));
        s += fmt::format(", cost {:.2f} x{}\n", x.cost, x.change.find("nvme_path=.") == std::string::npos ? "" : "; in place of . name a local disk");
    }
    if (s.empty())
        return "no change that was tried makes it fit: smaller passes, ZeRO stages, recompute, sequence parallelism, offload, "
               "bf16 and finer grids of the same ranks,\n"
               "alone and together\n";
    return fmt::format("changes that fit, bytes per rank, by cost (FLOPs, and {} for each byte that a rank sends or copies; 1 is the input\n"
                       "as it is), last those that change the numbers; in place of overrides of the same keys:\n", flops_per_byte) + s;
}

std::string json(const Plan& plan) {
    std::string programs, suggestions;
    for (const ProgramPlan& p : plan.programs) programs += (programs.empty() ? "\n  " : ",\n  ") + json_program(p);
    for (const Suggestion& x : plan.suggestions)
        suggestions += fmt::format("{}{{\"change\": \"{}\", \"peak_bytes\": {}, \"host_bytes\": {}, \"nvme_bytes\": {}, \"cost\": {:.17g}}}",
                                   suggestions.empty() ? "" : ", ", x.change, x.peak_bytes[0], x.peak_bytes[1], x.peak_bytes[2], x.cost);
    return fmt::format("{{\"parameters\": {}, \"trained_parameters\": {}, \"ranks\": {}, \"programs\": [{}],\n"
                       " \"flops\": {{\"model\": {:.17g}, \"hardware\": {:.17g}}},\n"
                       " \"recompute\": {{\"granularity\": \"{}\", \"bytes_saved\": {}, \"flops_added\": {:.17g}}},\n"
                       " \"pipeline\": {{\"schedule\": \"{}\", \"microbatches\": {}, \"bubble_fraction\": {:.17g}}},\n"
                       " \"memory_limit\": {}, \"host_memory_limit\": {}, \"fits\": {}, \"suggestions\": [{}]}}\n",
                       plan.parameters, plan.trained, plan.ranks, programs, plan.model_flops, plan.hardware_flops, plan.recompute.granularity,
                       plan.recompute.bytes_saved, plan.recompute.flops_added, plan.schedule, plan.microbatches, plan.bubble_fraction,
                       json_limit(plan.memory_limit), json_limit(plan.host_memory_limit), plan.fits ? "true" : "false", suggestions);
}

std::string does_not_fit(const Program& p, Tier tier, const Budget& budget, std::int64_t rank) {
    const TierPeak& d = p.peaks[static_cast<std::size_t>(tier)];
    std::string s = fmt::format("rank {} needs {} of {} memory and has {} ({}): {} too little\n", rank, format_bytes(d.arena), name_of(tier),
                                budget.bytes < 1 ? "none" : format_bytes(budget.bytes), budget.by, format_bytes(d.arena - budget.bytes));
    if (d.op >= 0 && static_cast<std::size_t>(d.op) < p.ops.size())
        s += fmt::format("  the peak stands at op {}\n", text(p, static_cast<std::size_t>(d.op)));
    for (std::size_t b = 0; b < book_count; ++b)
        s += fmt::format("  {:>12} {:>12}\n", name_of(static_cast<Book>(b)), format_bytes(d.books[b]));
    std::vector<const Buffer*> there;
    for (const Buffer& b : p.buffers)
        if (b.tier == tier && b.first >= 0 && b.first <= d.op && d.op <= b.last) there.push_back(&b);
    std::sort(there.begin(), there.end(), [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
    s += "  the largest there:";
    for (std::size_t i = 0; i < std::min<std::size_t>(there.size(), 5); ++i)
        s += fmt::format("{} {} ({})", i ? "," : "", p.tables->name(there[i]->name), format_bytes(there[i]->bytes));
    const std::int64_t staging = p.staging[static_cast<std::size_t>(tier)];
    const char* comma = there.empty() ? "" : ",";
    if (tier == Tier::host && staging > 0 && message_tier(p) != tier)
        s += fmt::format("{} blocks on their way to and from the disk ({}: offload.block_size times offload.queue_depth)", comma,
                         format_bytes(staging));
    else if (tier == Tier::host && staging > 0)
        s += fmt::format("{} what is on its way between ranks, and to and from a disk ({})", comma, format_bytes(staging));
    return s + "\n";
}

}  // namespace quadrille
