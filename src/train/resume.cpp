#include "train/resume.hpp"

#include "base/format.hpp"
#include "config/difference.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

// Of what the training has come to, what a run that begins has.
TrainingPoint beginning(const Config& c) {
    TrainingPoint p;
    p.seed = c.train.seed;
    if (c.train.precision == Precision::fp16) p.loss_scale = c.loss_scale.initial;
    return p;
}

[[noreturn]] void refuse(const std::string& what) { throw Error(Exit::refused, "checkpoint.resume: " + what); }

// Whether the step's folder, however it was written, stands in this directory.
bool stands_in(const fs::path& folder, const fs::path& directory) {
    std::error_code ignored;
    const fs::path plain = fs::absolute(folder / "file").lexically_normal().parent_path();  // without a slash at its end
    return fs::equivalent(plain.parent_path(), directory, ignored);
}

// Whether a path leads out of the run's own directory, be it there or not: a base may have gone since the run began with it. Collective.
bool leads_elsewhere(const Collectives& ranks, const CheckpointConfig& c) {
    return !on_first_rank(ranks, [&]() -> std::string {
        std::error_code ignored;
        const bool own = fs::equivalent(c.resume, c.directory, ignored) || stands_in(c.resume, c.directory);
        return own ? "" : "elsewhere";
    }).empty();
}

// Whether the run that saved it began with the same path as this one, and has steps left or need not make room for a new one.
bool began_alike(const Checkpoint& own, const Config& c) {
    const bool goes_on = own.point.step < c.train.steps || !c.output.overwrite;
    return goes_on && former_value(own.point.config_yaml, "checkpoint.resume") == c.checkpoint.resume;
}

// What checkpoint.resume names. A path that leads elsewhere is what a run begins with: once that run has saved, the same command goes on from its
// own, as that of a job that is queued again must.
Found find_checkpoint(const Collectives& ranks, const Config& c, std::vector<std::string>& notes) {
    const std::string& resume = c.checkpoint.resume;
    if (resume == "none") return {};
    if (resume == "auto") return find_newest(ranks, c.checkpoint.directory);
    std::vector<std::string> damaged;  // of its own
    if (leads_elsewhere(ranks, c.checkpoint)) {
        Found own = find_newest(ranks, c.checkpoint.directory);
        if (own.checkpoint && began_alike(*own.checkpoint, c)) {
            notes.push_back(fmt::format("resume: the run that began with {} has saved in {} since, and is gone on with", resume,
                                        c.checkpoint.directory));
            return own;
        }
        damaged = std::move(own.passed_over);
    }
    Found named = open_checkpoint(ranks, resume);
    named.passed_over.insert(named.passed_over.begin(), damaged.begin(), damaged.end());
    return named;
}

// Whether the checkpoint is of a model without adapters, and this run puts new ones on it.
bool is_base(const Checkpoint& checkpoint, const Config& c) { return c.lora.on() && without_adapters(checkpoint.point.config_yaml); }

// Keys of model.lora say nothing of a base.
std::vector<Difference> differences_from(const Checkpoint& checkpoint, const Config& c) {
    std::vector<Difference> all = differences(checkpoint.point.config_yaml, c);
    if (is_base(checkpoint, c)) std::erase_if(all, [](const Difference& d) { return d.key.starts_with("model.lora."); });
    return all;
}

// Throws Error{refused} unless the run may go on with it.
void check_fit(const Checkpoint& checkpoint, bool own, const Config& c) {
    std::vector<std::string> unlike;
    for (const Difference& d : differences_from(checkpoint, c))
        if (d.must_match) unlike.push_back(fmt::format("{} is {} there and {} in this input", d.key, d.before, d.now));
    const std::string name = checkpoint.folder.string();
    if (!unlike.empty()) refuse(fmt::format("{} is of another model: {}", name, fmt::join(unlike, "; ")));
    if (is_base(checkpoint, c)) {
        if (own)
            refuse(fmt::format("{} has no adapters, and this run puts some on it (model.lora.rank {}): name it with checkpoint.resume and choose "
                               "another output.directory, for it does not go on from there", name, c.lora.rank));
        return;
    }
    if (checkpoint.point.step > c.train.steps)
        refuse(fmt::format("{} is of step {}, but train.steps is {}, allowed: more, or a checkpoint of an earlier step", name, checkpoint.point.step,
                           c.train.steps));
}

// A run that does not go on from what stands in its directory would mix its own checkpoints with those.
void check_directory(const Config& c, const Start& start) {
    if (c.output.overwrite || (start.resumes && start.own)) return;
    const std::vector<fs::path> there = steps_in(c.checkpoint.directory);
    if (there.empty() || (c.checkpoint.resume == "auto" && !start.checkpoint)) return;  // auto has found none of them whole
    throw Error(Exit::refused, fmt::format("checkpoint.directory: {} holds a checkpoint, {}, which this run does not go on from; set "
                                           "checkpoint.resume=auto to do so, choose another directory, or set output.overwrite=true to {}",
                                           c.checkpoint.directory, there.front().filename().string(),
                                           start.passed_over ? "put it aside" : "remove it"));
}

std::string updates_text(const TrainingPoint& p) {
    return p.updates == p.step ? "" : fmt::format(", {} of which have updated the weights", p.updates);
}

// What the run takes over of the checkpoint's point; all else its own input says.
TrainingPoint point_of(const Checkpoint& checkpoint, const Config& c) {
    TrainingPoint p = beginning(c);
    const TrainingPoint& from = checkpoint.point;
    p.step = from.step;
    p.updates = from.updates;
    p.sequences = from.sequences;
    p.follows_a_step = from.follows_a_step;
    const auto all = differences(from.config_yaml, c);
    const bool same_precision = !of_model_only(from.config_yaml) &&
                                std::none_of(all.begin(), all.end(), [](const Difference& d) { return d.key == "train.precision"; });
    if (c.train.precision == Precision::fp16 && same_precision) {
        p.loss_scale = from.loss_scale;
        p.good_steps = from.good_steps;
    }
    return p;
}

std::string listed(const std::vector<std::string>& names) {
    constexpr std::size_t most = 4;
    if (names.size() <= most) return fmt::format("{}", fmt::join(names, ", "));
    return fmt::format("{}, ... {} ({} in all)", names.front(), names.back(), names.size());
}

// What becomes of sums that the checkpoint's run had yet to make: compressed gradients' residuals, stale gradients.
void note_terms(Start& start, const Loaded& loaded, const Config& c) {
    const auto note = [&](const std::string& what) { start.notes.push_back("resume: " + what); };
    const auto [there, here] = loaded.terms;
    if (there > 0)
        note(fmt::format("residuals and stale gradients are of {} there and {} here: handed on, or added up, so that their sum is what it was", there,
                         format_number_of(here, "holder")));
    if (!loaded.lost_residuals.empty())
        note("residuals are dropped, for this run keeps none of these, and what they left unsent is lost: " + listed(loaded.lost_residuals));
    if (!loaded.fresh_residuals.empty())
        note("residuals begin at zero, for the checkpoint has none: " + listed(loaded.fresh_residuals));
    if (loaded.lost_stale && start.point.follows_a_step)
        note(fmt::format("gradients of step {}, which were to update in the next one, are dropped, for comm.staleness is {}", start.point.step,
                         c.comm.staleness));
    start.point.follows_a_step = start.point.follows_a_step && c.comm.staleness > 0 && !loaded.fresh_stale;
    if (c.comm.staleness > 0 && start.point.step > 0 && !start.point.follows_a_step)
        note(fmt::format("step {} updates nothing, for the checkpoint is without stale gradients", start.point.step + 1));
}

// A name beside `folder` that nothing has: former-step-00000100, with a number where that is taken.
fs::path former_name(const fs::path& folder) {
    std::error_code ignored;
    const std::string name = "former-" + folder.filename().string();
    fs::path free = folder.parent_path() / name;
    for (int number = 2; fs::exists(free, ignored); ++number) free = folder.parent_path() / fmt::format("{}-{}", name, number);
    return free;
}

}  // namespace

Start find_start(const Collectives& ranks, const Config& c) {
    Start start;
    start.point = beginning(c);
    on_first_rank(ranks, [&] { start.seen = steps_in(c.checkpoint.directory); return std::string(); });
    Found found = find_checkpoint(ranks, c, start.notes);
    for (const std::string& reason : found.passed_over) start.warnings.push_back("checkpoint.resume: passed over: " + reason);
    start.passed_over = !found.passed_over.empty();
    start.checkpoint = std::move(found.checkpoint);
    if (c.checkpoint.resume == "auto" && !start.checkpoint)
        start.notes.push_back(fmt::format("resume: no {}checkpoint in {}, so the run begins afresh", found.passed_over.empty() ? "" : "whole ",
                                          c.checkpoint.directory));
    const std::string own = on_first_rank(ranks, [&]() -> std::string {
        start.own = start.checkpoint && stands_in(start.checkpoint->folder, c.checkpoint.directory);
        if (start.checkpoint) check_fit(*start.checkpoint, start.own, c);
        start.resumes = start.checkpoint && !is_base(*start.checkpoint, c);
        check_directory(c, start);
        return start.own ? "own" : "";
    });
    start.own = !own.empty();
    start.resumes = start.checkpoint && !is_base(*start.checkpoint, c);
    if (start.resumes) start.point = point_of(*start.checkpoint, c);
    return start;
}

void note_start(Start& start, const Config& c) {
    if (!start.checkpoint) return;
    const Checkpoint& from = *start.checkpoint;
    const bool imported = of_model_only(from.point.config_yaml);
    const std::string maker = fmt::format("{} by quadrille {} ({})", imported ? "imported" : "saved", from.point.version, from.point.git_commit);
    if (!start.resumes) {
        start.notes.push_back(fmt::format("resume: {} gives the frozen weights, {}; step, data, optimizer and adapters begin anew",
                                          from.folder.string(), maker));
    } else if (imported) {
        start.notes.push_back(fmt::format("resume: begins with the weights of {}, {}", from.folder.string(), maker));
    } else {
        start.notes.push_back(fmt::format("resume: goes on after step {} of {}{}, from {}, {}", from.point.step, c.train.steps,
                                          updates_text(from.point), from.folder.string(), maker));
    }
    const std::string whose = imported ? "the import says" : "the checkpoint's run had";
    for (const Difference& d : differences_from(from, c))
        start.notes.push_back(fmt::format("resume: {} is {}; {} {}", d.key, d.now, whose, d.before));
}

void note_loaded(Start& start, const Loaded& loaded, const Program& training, const Config& c) {
    const auto note = [&](const std::string& what) { start.notes.push_back("resume: " + what); };
    start.load_seconds = loaded.seconds;
    note(fmt::format("{} loaded in {}", format_bytes(loaded.bytes), format_seconds(loaded.seconds)));
    if (!loaded.fresh_parameters.empty()) note("begin anew, for the checkpoint has none: " + listed(loaded.fresh_parameters));
    if (!loaded.unused.empty()) note("of no use here, for this model has none: " + listed(loaded.unused));
    if (start.resumes) note_terms(start, loaded, c);
    if (!start.resumes || loaded.fresh_moments.empty()) return;
    note("moments begin at zero, for the checkpoint has none: " + listed(loaded.fresh_moments));
    const auto trained = std::count_if(training.parameters.begin(), training.parameters.end(), [](const Parameter& p) { return p.trained; });
    if (static_cast<std::int64_t>(loaded.fresh_moments.size()) == trained) start.point.updates = 0;
}

std::vector<std::string> clear_checkpoints(const Config& c, const Start& start) {
    std::vector<std::string> said;
    for (const fs::path& folder : steps_in(c.checkpoint.directory)) {
        const bool goes_on = start.resumes && start.own;
        std::error_code reason;
        if (goes_on && (step_of(folder) < start.point.step || fs::equivalent(folder, start.checkpoint->folder, reason))) continue;
        if (!goes_on && c.output.overwrite && !start.passed_over) {
            fs::remove_all(folder, reason);
            said.push_back(fmt::format("checkpoint.directory: {} is removed, as output.overwrite asks", folder.string()));
        } else {
            const fs::path name = former_name(folder);
            fs::rename(folder, name, reason);
            said.push_back(fmt::format("checkpoint.directory: {} is of no run any more and kept as {}", folder.string(), name.filename().string()));
        }
        if (reason) throw Error(Exit::io_failed, fmt::format("{}: cannot be put aside: {}", folder.string(), reason.message()));
    }
    return said;
}

}  // namespace quadrille
