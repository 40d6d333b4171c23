#include "train/agree.hpp"
#include "train/commands.hpp"
#include "train/trainer.hpp"

#include <cstdio>

namespace quadrille {
namespace {

Arguments arguments_of(int argc, char** argv, const Words& words) {
    Arguments a;
    for (int i = 0; i < argc; ++i) a.command += (i ? " " : "") + std::string(argv[i]);
    for (const std::string& w : words) {
        if (w.size() > 1 && w[0] == '-') throw Error(Exit::refused, fmt::format("train: unknown option {}; {}", w, form("train")));
        if (a.input.empty()) a.input = w;
        else a.overrides.push_back(w);
    }
    if (a.input.empty()) throw Error(Exit::refused, "train: which input file? " + form("train"));
    return a;
}

void say(const std::string& message) { fmt::print(stderr, "quadrille: {}\n", message); }

}  // namespace

int train_command(int argc, char** argv, const Words& words) {
    const Arguments arguments = arguments_of(argc, argv, words);
    World world(&argc, &argv);
    // From here on a failure of one rank alone must end all: the others would wait for it for ever.
    try {
        Session session(world, arguments);
        Trainer trainer(session);
        try {
            const Exit exit = trainer.run();
            trainer.close(exit);
            return static_cast<int>(exit);
        } catch (const SharedError& e) {
            trainer.close(e.exit());
            throw;
        }
    } catch (const SharedError& e) {
        if (world.rank() == 0) say(e.what());
        return static_cast<int>(e.exit());
    } catch (const std::exception& e) {
        const Failure failure = failure_of(e);
        say(fmt::format("rank {}: {}", world.rank(), failure.message));
        world.abort(failure.exit);
    }
}

}  // namespace quadrille
