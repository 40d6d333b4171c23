#include "base/say.hpp"
#include "comm/agree.hpp"
#include "comm/watchdog.hpp"
#include "train/commands.hpp"
#include "train/launcher.hpp"
#include "train/trainer.hpp"

#include <optional>
#include <string_view>

namespace quadrille {
namespace {

// Every rank has the same words, and so the same complaint.
Arguments arguments_of(int argc, char** argv, const Words& words, double begun) {
    Arguments a;
    a.begun = begun;
    for (int i = 0; i < argc; ++i) a.command += (i ? " " : "") + std::string(argv[i]);
    for (const std::string& w : words) {
        if (w.size() > 1 && w[0] == '-') throw SharedError(Exit::refused, fmt::format("train: unknown option {}; {}", w, form("train")));
        if (w.empty()) throw SharedError(Exit::refused, "train: a word of the command line is empty: a variable of the shell that is not set?");
        if (a.input.empty()) a.input = w;
        else a.overrides.push_back(w);
    }
    if (a.input.empty()) throw SharedError(Exit::refused, "train: which input file? " + form("train"));
    return a;
}

// What all ranks have failed of is said first, for closing the record may fail too.
Exit close_after(Trainer& trainer, const World& world, const SharedError& failure) {
    const bool speaks = world.rank() == 0;
    if (speaks) say(failure.what());
    try {
        trainer.close(failure.exit());
    } catch (const SharedError& later) {
        if (speaks && std::string_view(later.what()) != failure.what()) say(later.what());
    }
    return failure.exit();
}

Exit run(Session& session, const Arguments& arguments) {
    Trainer trainer(session, arguments.begun);
    try {
        const Exit exit = trainer.run();
        trainer.close(exit);
        return exit;
    } catch (const SharedError& e) {
        return close_after(trainer, session.world, e);
    }
}

Exit train(World& world, const Arguments& arguments) {
    Session session(world, arguments);
    std::optional<Watchdog> watchdog;  // from here on: before, a rank may work alone for as long as it takes
    if (const auto seconds = session.config.comm.watchdog; seconds > 0 && world.size() > 1)
        watchdog.emplace(world, static_cast<double>(seconds), [&session](int rank, const Origin& at) { return session.line(rank, at); });
    try {
        return run(session, arguments);
    } catch (const SharedError&) {
        throw;
    } catch (const std::exception& e) {  // here, where the memory that messages in flight arrive in is still there, and no engine ends
        end_alone(world, e);
    }
}

}  // namespace

int train_command(int argc, char** argv, const Words& words) {
    const double begun = now();
    World world(&argc, &argv);
    refuse_singletons(world);
    try {
        return static_cast<int>(train(world, arguments_of(argc, argv, words, begun)));
    } catch (const SharedError& e) {
        if (world.rank() == 0) say(e.what());
        return static_cast<int>(e.exit());
    } catch (const std::exception& e) {
        end_alone(world, e);
    }
}

}  // namespace quadrille
