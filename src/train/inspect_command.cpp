#include "base/error.hpp"
#include "record/report.hpp"
#include "train/commands.hpp"

namespace quadrille {

int inspect_command(const Words& words) {
    if (words.size() != 1 || words[0].empty() || words[0][0] == '-') throw Error(Exit::refused, "usage: quadrille inspect PATH  (a run record, or the directory that holds one)");
    fmt::print("{}", inspect_record(words[0]));
    return 0;
}

std::string usage() {
    return "Quadrille trains GPT- and Llama-style transformers on a DP x TP x PP x SP grid of MPI ranks.\n\n"
           "  mpirun -n N quadrille train FILE.yaml [section.key=value ...]\n"
           "  quadrille plan    FILE.yaml [section.key=value ...] [--ranks N] [--program] [--json] [--resolved]\n"
           "  quadrille bench   [gemm|memory|collectives|all] [--json FILE]\n"
           "  quadrille inspect PATH\n"
           "  quadrille --help | --version\n\n"
           "exit codes: 0 done; 2 refused (usage, input, data, grid); 3 does not fit in memory; 4 training diverged;\n"
           "5 I/O failed; 6 a rank failed. Every key of the input file: inputs/reference.yaml\n";
}

}  // namespace quadrille
