// The subcommands, the exit codes, who answers to signals, what becomes of output that is lost, and how long OpenMP spins. Nothing else.
#include "base/error.hpp"
#include "base/say.hpp"
#include "record/version.hpp"
#include "train/commands.hpp"
#include "train/launcher.hpp"
#include "train/stop.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <unistd.h>

using namespace quadrille;

namespace {

int run(int argc, char** argv) {
    const Words words(argv + 1, argv + argc);
    const std::string command = words.empty() ? "" : words[0];
    const Words rest(words.begin() + (words.empty() ? 0 : 1), words.end());
    const bool asks = std::any_of(rest.begin(), rest.end(), [](const std::string& w) { return w == "--help" || w == "-h"; });
    if (const std::string help = usage(command); asks && !help.empty()) {
        fmt::print("{}", help);
        return 0;
    }
    if (command == "train") return train_command(argc, argv, rest);
    if (command == "plan") return plan_command(rest);
    if (command == "bench") return bench_command(argc, argv, rest);
    if (command == "inspect") return inspect_command(rest);
    if (command == "export") return export_command(rest);
    if (command == "import") return import_command(rest);
    if (command == "--help" || command == "-h" || command == "help") {
        fmt::print("{}", usage());
        return 0;
    }
    if (command == "--version") {
        fmt::print("quadrille {} ({})\n", version(), git_commit());
        return 0;
    }
    throw Error(Exit::refused, (command.empty() ? "which command?" : "'" + command + "' is no command") + std::string("\n\n") + usage());
}

// What a command prints is its result, and to lose it is to fail. Of train the result is the record.
int deliver(int argc, char** argv) {
    const bool prints_result = argc < 2 || std::strcmp(argv[1], "train") != 0;
    std::string reason;
    try {
        const int code = run(argc, argv);
        errno = 0;
        if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
        if (!prints_result) return code;
        reason = errno != 0 ? std::strerror(errno) : "not all of it was taken";
    } catch (const std::system_error& e) {
        if (!prints_result || !std::ferror(stdout)) throw;
        reason = e.code().message();
    }
    throw Error(Exit::io_failed, "standard output: " + reason);
}

// OpenMP's barriers spin, by default for milliseconds; where ranks share cores, that is the time of the rank waited for. The runtime reads
// its settings when it is loaded, before main, so the program starts itself once more with a short spin, unless the user has chosen.
void shorten_spinning(char** argv) {
    for (const char* chosen : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
        if (std::getenv(chosen)) return;
    setenv("GOMP_SPINCOUNT", "20000", 1);
    setenv("KMP_BLOCKTIME", "0", 1);
    std::error_code unknown;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);  // by its name, which `ps` shows
    execv(self.c_str(), argv);  // returns only if that is not possible: then it stays as it is
}

// For what no `catch` can reach: an exception that leaves a thread or a parallel region.
[[noreturn]] void end_by_what_was_thrown() {
    Failure failure{Exit::rank_failed, "ended without a reason given"};
    try {
        if (std::current_exception()) std::rethrow_exception(std::current_exception());
    } catch (const std::exception& e) {
        failure = failure_of(e);
    } catch (...) {
    }
    say(failure.message);
    std::_Exit(static_cast<int>(failure.exit));
}

}  // namespace

int main(int argc, char** argv) {
    hold_signals();
    std::signal(SIGXFSZ, SIG_IGN);  // at the limit of a file's size (ulimit -f) a write then fails, and is told of like any other
    shorten_spinning(argv);
    std::set_terminate(end_by_what_was_thrown);
    try {
        if (argc > 1 && std::string_view(argv[1]) == "train") {
            std::signal(SIGPIPE, SIG_IGN);  // a reader of its log that goes away ends no run
            handle_signals();
        } else {
            release_signals();
        }
        return deliver(argc, argv);
    } catch (const std::exception& e) {
        const Failure failure = failure_of(e);
        complain(failure);
        return static_cast<int>(failure.exit);
    }
}
