// What the command line understands, for people. The one place where the forms of the subcommands stand.
#include "base/error.hpp"
#include "train/commands.hpp"

#include <array>

namespace quadrille {
namespace {

struct Subcommand {
    const char *name, *form, *what;
};

constexpr std::array<Subcommand, 6> subcommands = {{
    {"train", "mpirun -n N quadrille train FILE.yaml [section.key=value ...]",
     "Trains the model of the input file on N ranks (jobscripts/launch.sh N starts them with srun or mpirun); one rank needs no launcher. FILE\n"
     "may be -, standard input. An override obeys every rule of the file. Every key with its default: inputs/reference.yaml. The run leaves its\n"
     "record in output.directory: `quadrille inspect` reads it. SIGUSR1 to any rank stops it at the next step, after saving: exit code 75, and the\n"
     "same command goes on.\n"},
    {"plan", "quadrille plan FILE.yaml [section.key=value ...] [--ranks N] [--program] [--json] [--resolved]",
     "Compiles and verifies the programs of the whole grid without running them, on this one core, and prints memory per rank and book, FLOPs,\n"
     "wire bytes, the pipeline's order, and whether it fits device.memory_limit; if not, changes that would (exit 3). The resolved input comes\n"
     "last, in short.\n\n"
     "  --ranks N     ranks of the job, where grid.dp is auto\n"
     "  --program     the programs themselves, one op a line, and nothing else\n"
     "  --json        all of the figures as one object, and nothing else\n"
     "  --resolved    the whole resolved input alone, as YAML: fed back, it runs the same\n"},
    {"bench", "quadrille bench [gemm|memory|collectives|storage|all] [--json FILE] [--size BYTES] [offload.KEY=value ...]",
     "Measures what the machine gives: matrix products and memory of one process, collectives of all ranks (start it with a launcher, on at least\n"
     "2 ranks), ours beside the MPI library's own; the nvme tier's file in offload.nvme_path (else here) at offload.block_size and\n"
     "offload.queue_depth. Without a word, all of it.\n\n"
     "  --json FILE   the rows as JSON as well\n"
     "  --size BYTES  of the nvme tier's file (256MiB)\n"},
    {"inspect", "quadrille inspect PATH",
     "Sums up a run record (run.h5, or the directory that holds one), a trace (trace.h5) or a checkpoint (a step's folder, or the directory of\n"
     "steps: its newest), having checked every checksum.\n"},
    {"export", "quadrille export CHECKPOINT FOLDER [--dtype fp32|bf16|fp16] [--shard BYTES] [--merge-lora] [--replace]",
     "Writes a checkpoint's parameters (a step's folder, or the directory of steps: its newest) to a new folder as Hugging Face's libraries read\n"
     "them: config.json and safetensors, as GPT-2 or Llama. In one process, whatever grid has written the checkpoint.\n\n"
     "  --dtype TYPE   of the values (fp32, which is exact)\n"
     "  --shard BYTES  of one file at most; more files have an index (5000000000)\n"
     "  --merge-lora   adds adapters (model.lora) to the weights; without it a model that has them is refused\n"
     "  --replace      the folder may be a former export, which goes when the new one is whole\n"},
    {"import", "quadrille import FOLDER DIRECTORY [model.key=value ...] [--replace]",
     "Writes a model of Hugging Face's libraries (config.json and safetensors, gpt2 or llama) to DIRECTORY as a checkpoint of step 0, which any\n"
     "grid begins with by checkpoint.resume, and prints the section `model` of an input file for it. Overrides change what config.json says, such\n"
     "as model.hidden_dropout and, with rotary positions, model.seq_length.\n\n"
     "  --replace  the directory may hold a former import, which goes when the new one is whole\n"},
}};

const Subcommand* find(const std::string& name) {
    for (const Subcommand& s : subcommands)
        if (s.name == name) return &s;
    return nullptr;
}

}  // namespace

std::string form(const std::string& command) {
    const Subcommand* s = find(command);
    require(s != nullptr, "usage: " + command + " is a subcommand");
    return fmt::format("usage: {}", s->form);
}

std::string usage(const std::string& command) {
    const Subcommand* s = find(command);
    return s ? fmt::format("usage: {}\n\n{}", s->form, s->what) : "";
}

std::string usage() {
    std::string text = "Quadrille trains GPT- and Llama-style transformers on a DP x TP x PP x SP grid of MPI ranks.\n\n";
    for (const Subcommand& s : subcommands) text += fmt::format("  {}\n", s.form);
    return text +
           "  quadrille SUBCOMMAND --help\n"
           "  quadrille --help | --version\n\n"
           "exit codes: 0 done; 2 refused (usage, input, data, grid); 3 does not fit in memory; 4 training diverged;\n"
           "5 I/O failed; 6 a rank failed; 75 stopped early, and saved. Every key of the input file: inputs/reference.yaml\n";
}

}  // namespace quadrille
