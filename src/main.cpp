// The subcommands and the exit codes. Nothing else.
#include "base/error.hpp"
#include "record/version.hpp"
#include "train/commands.hpp"

#include <cstdio>

using namespace quadrille;

namespace {

int run(int argc, char** argv) {
    const Words words(argv + 1, argv + argc);
    const std::string command = words.empty() ? "" : words[0];
    const Words rest(words.begin() + (words.empty() ? 0 : 1), words.end());
    if (command == "train") return train_command(argc, argv, rest);
    if (command == "plan") return plan_command(rest);
    if (command == "bench") return bench_command(argc, argv, rest);
    if (command == "inspect") return inspect_command(rest);
    if (command == "--help" || command == "-h" || command == "help") {
        fmt::print("{}", usage());
        return 0;
    }
    if (command == "--version") {
        fmt::print("quadrille {} ({})\n", version(), git_commit());
        return 0;
    }
    if (command == "export" || command == "import") throw Error(Exit::refused, command + ": not in this build");
    throw Error(Exit::refused, (command.empty() ? "which command?" : "'" + command + "' is no command") + std::string("\n\n") + usage());
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const Error& e) {
        fmt::print(stderr, "quadrille: {}\n", e.what());
        return static_cast<int>(e.exit());
    } catch (const std::exception& e) {
        fmt::print(stderr, "quadrille: {}\n", e.what());
        return static_cast<int>(Exit::rank_failed);
    }
}
