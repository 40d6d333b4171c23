#include "base/rounding.hpp"
#include "base/say.hpp"
#include "config/load.hpp"
#include "ir/print.hpp"
#include "plan/choices.hpp"
#include "plan/plan.hpp"
#include "plan/suggest.hpp"
#include "train/commands.hpp"
#include "train/device.hpp"

#include <charconv>
#include <cstdio>

namespace quadrille {
namespace {

constexpr std::int64_t most_ranks = 2147483647;  // MPI counts them in an int

struct PlanArguments {
    std::string input;
    Words overrides;
    std::int64_t ranks = 0;
    bool program = false, json = false, resolved = false;
};

PlanArguments parse(const Words& words) {
    PlanArguments a;
    for (std::size_t i = 0; i < words.size(); ++i) {
        std::string w = words[i];
        if (w.rfind("--ranks", 0) == 0) {
            const std::string number = w.size() > 8 && w[7] == '=' ? w.substr(8) : w == "--ranks" && i + 1 < words.size() ? words[++i] : "";
            std::int64_t ranks = 0;
            const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), ranks);
            if (error != std::errc() || end != number.data() + number.size() || ranks < 1 || ranks > most_ranks)
                throw Error(Exit::refused, fmt::format("plan: --ranks takes a number from 1 to {}, not '{}'", most_ranks, number));
            if (a.ranks > 0) throw Error(Exit::refused, fmt::format("plan: --ranks stands twice, with {} and {}", a.ranks, ranks));
            a.ranks = ranks;
        } else if (w == "--program") a.program = true;
        else if (w == "--json") a.json = true;
        else if (w == "--resolved") a.resolved = true;
        else if (w.size() > 1 && w[0] == '-') throw Error(Exit::refused, fmt::format("plan: unknown option {}; {}", w, form("plan")));
        else if (w.empty()) throw Error(Exit::refused, "plan: a word of the command line is empty: a variable of the shell that is not set?");
        else if (a.input.empty()) a.input = w;
        else a.overrides.push_back(w);
    }
    if (a.input.empty()) throw Error(Exit::refused, fmt::format("plan: which input file? {}", form("plan")));
    if (a.program + a.json + a.resolved > 1)
        throw Error(Exit::refused, fmt::format("plan: --program, --json and --resolved each print something and nothing else: one of them; {}",
                                               form("plan")));
    return a;
}

// On a machine that nobody has seen: nodes as pretended, or of eight ranks.
Choices choose_unseen(const Config& config) {
    const std::int64_t ranks = config.grid.ranks(), nodes = config.grid.pretend_nodes;
    Machine machine;
    machine.links = assumed_topology(ranks, nodes > 0 ? ceil_div(ranks, nodes) : 8);
    try {
        return choose(config, workspace_of(config), machine);
    } catch (const TypingError& e) {
        throw Error(Exit::refused, std::string("the model does not fit the grid: ") + e.what());
    }
}

}  // namespace

int plan_command(const Words& words) {
    const PlanArguments a = parse(words);
    Job job;
    job.ranks = a.ranks;
    std::vector<std::string> warnings;
    Choices choices{load_config(a.input, a.overrides, job, &warnings), {}};
    if (leaves_open(choices.config)) choices = choose_unseen(choices.config);
    const Config& config = choices.config;
    for (const std::string& w : warnings) say("warning: " + w);
    if (a.resolved) {
        fmt::print("{}", to_yaml(config));
        return 0;
    }
    const Workspace workspace = workspace_of(config);
    const Variation vary = [&](const Words& more) { return settled_like(load_config(a.input, merged_overrides(a.overrides, more), job), config); };
    std::vector<Program> programs;
    Plan plan = make_plan(config, workspace, {}, &programs);
    const bool people = !a.json && !a.program;
    if (people) {
        fmt::print("{}", figures(plan));
        std::fflush(stdout);  // advice for a large model takes its time
    }
    const bool advise = !plan.fits && !a.program && a.input != "-";  // a stream is read once
    if (advise) plan.suggestions = suggest(config, workspace, vary, plan.cost);
    if (a.json) fmt::print("{}", json(plan));
    if (people && advise) fmt::print("{}", advice(plan.suggestions));
    if (people) {
        for (const Choice& c : choices.made) fmt::print("{}\n", text(c));
        fmt::print("input as resolved (--resolved prints all of it)\n{}", in_short(config));
    }
    if (a.program)
        for (const Program& p : programs) fmt::print("program of pp {}\n{}", p.coordinate, text(p));
    return plan.fits ? 0 : static_cast<int>(Exit::no_memory);
}

}  // namespace quadrille
