#include "base/error.hpp"
#include "checkpoint/inspect.hpp"
#include "record/report.hpp"
#include "train/commands.hpp"

namespace quadrille {

int inspect_command(const Words& words) {
    if (words.size() != 1 || words[0].empty() || words[0][0] == '-') throw Error(Exit::refused, form("inspect"));
    fmt::print("{}", is_checkpoint(words[0]) ? inspect_checkpoint(words[0]) : inspect_record(words[0]));
    return 0;
}

}  // namespace quadrille
