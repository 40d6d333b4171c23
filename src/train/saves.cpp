#include "train/saves.hpp"

#include "base/format.hpp"
#include "comm/evidence.hpp"

#include <algorithm>

namespace quadrille {
namespace {

SaveSettings settings_of(const Config& config, const World& world) {
    const CheckpointConfig& c = config.checkpoint;
    SaveSettings s;
    s.threads = c.behind_training() ? 1 : config.device.threads;  // behind training, the cores are training's
    s.directory = c.directory;
    s.hints = c.hints;
    s.keep = c.keep;
    s.asynchronous = c.behind_training();
    s.fail_alone = [&world](const std::exception& e) { end_alone(world, e); };
    return s;
}

}  // namespace

double seconds_to_stop(const CheckpointConfig& c, std::int64_t bytes, double slowest, double removal, double left) {
    constexpr double margin = 1.5, slow_disk = 200e6, ending = 2;  // bytes a second; seconds that the job's end takes
    constexpr double most = 0.25;  // of the time left, where it is a guess
    const int saves = c.behind_training() ? 2 : 1;  // the one under way too
    const double guess = std::min(static_cast<double>(bytes) / slow_disk, most * std::max(0.0, left));
    return ending + margin * (saves * (slowest > 0 ? slowest : guess) + 2 * removal);
}

Saves::Saves(Session& session, Console& console)
    : s_(session), console_(console),
      saver_(session.world, settings_of(session.config, session.world), session.program(), session.coordinate, session.arena(),
             session.snapshot()),
      bytes_(saver_.bytes()) {
    const Start& start = s_.start;
    if (start.resumes && start.own && step_of(start.checkpoint->folder) == start.point.step) newest_ = start.point.step;
    slowest_ = s_.start.load_seconds;  // what it takes to read one is the best guess of what it takes to write one
    for (const std::string& note : saver_.notes()) console_.print(note);
}

bool Saves::due(std::int64_t step) const {
    const std::int64_t interval = s_.config.checkpoint.interval;
    return interval > 0 && step > 0 && step != newest_ && (step % interval == 0 || step == s_.config.train.steps);
}

void Saves::save(const TrainingPoint& point, bool must) {
    if (must) finish();
    s_.world.evidence().doing(Doing::saves, point.step, now());
    if (saver_.save(point)) newest_ = point.step;
    else
        console_.print(fmt::format("checkpoint: that of step {} is left out, for the one before it is still being written; checkpoint.interval {} is "
                                   "shorter than a save takes", point.step, s_.config.checkpoint.interval));
    s_.world.evidence().doing(Doing::other, 0, now());
    tell_saved();
    if (must) finish();
}

void Saves::look() {
    if (s_.config.checkpoint.behind_training()) tell_saved();
}

void Saves::finish() {
    saver_.finish();
    for (const std::string& note : saver_.notes()) console_.warning("checkpoint: an older one stays: " + note);
    tell_saved();
}

void Saves::tell_saved() {
    for (const Saved& saved : saver_.saved()) {
        slowest_ = std::max(slowest_, saved.seconds);
        removal_ = std::max(removal_, saved.removal_seconds);
        bytes_ = saved.bytes;
        for (const std::string& note : saved.notes) console_.warning("checkpoint: an older one stays: " + note);
        console_.print(fmt::format("checkpoint: {}, {} in {}", saved.folder.string(), format_bytes(saved.bytes), format_seconds(saved.seconds)));
    }
}

}  // namespace quadrille
