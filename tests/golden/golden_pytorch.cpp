// The trainer against PyTorch: ten steps of two micro models give the losses, norms and gradients that make_reference.py stored, on
// one rank and on every kind of grid that the world has room for. Runs the product's own session and loop; owns the comparison.
#include "mpi/mpi_main.hpp"
#include "parameters.hpp"
#include "train/trainer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <sstream>

using namespace quadrille;
using quadrille::test::world;

namespace {

const std::filesystem::path folder = QUADRILLE_GOLDEN;
constexpr double loss_tolerance = 1e-5, first_gradient_tolerance = 1e-5, last_gradient_tolerance = 1e-3;

using Gradients = std::map<std::string, std::vector<float>>;

struct Reference {
    std::vector<double> losses, norms;
    Gradients first, last;  // before clipping
};

Gradients read_gradients(std::istream& file, const std::vector<std::pair<std::string, std::size_t>>& parameters) {
    static_assert(std::endian::native == std::endian::little, "the stored gradients are little-endian");
    Gradients g;
    for (const auto& [name, elements] : parameters) {
        std::vector<float>& values = g[name];
        values.resize(elements);
        file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(elements * sizeof(float)));
    }
    REQUIRE(file.good());
    return g;
}

// Everyone reads it: the cases compare losses on all ranks, gradients on rank 0.
Reference read_reference(const std::string& model) {
    Reference r;
    std::vector<std::pair<std::string, std::size_t>> parameters;
    std::ifstream text(folder / (model + ".reference"));
    for (std::string line, word; std::getline(text, line);) {
        std::istringstream in(line);
        in >> word;
        if (word == "step") {
            std::size_t step = 0;
            in >> step >> r.losses.emplace_back() >> r.norms.emplace_back();
            REQUIRE(step == r.losses.size());
        } else if (word == "parameter") {
            auto& [name, elements] = parameters.emplace_back();
            in >> name >> elements;
        }
    }
    REQUIRE(r.losses.size() == 10);
    std::ifstream gradients(folder / (model + ".gradients"), std::ios::binary);
    r.first = read_gradients(gradients, parameters);
    r.last = read_gradients(gradients, parameters);
    return r;
}

// An output directory for the length of a case, the same on all ranks.
class Scratch {
  public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "golden-XXXXXX").string();
        if (world().rank() == 0) REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = world().broadcast(name);
    }
    ~Scratch() {
        world().barrier();
        std::error_code ignored;
        if (world().rank() == 0) std::filesystem::remove_all(path_, ignored);
    }
    std::string path() const { return path_; }

  private:
    std::string path_;
};

struct Run {
    std::vector<StepRow> steps;  // rank 0's, as the next
    Gradients gradients;         // of the last step
};

// The rate of a step does not depend on train.steps (the inputs name decay_steps), so a shorter run is the beginning of a longer.
Run train(const std::string& model, int steps, std::vector<std::string> overrides) {
    const Scratch scratch;
    const std::string all = std::to_string(steps);
    overrides.insert(overrides.end(), {"train.steps=" + all, "output.log_interval=" + all, "device.threads=1", "output.directory=" + scratch.path()});
    Session session(world(), {"", (folder / (model + ".yaml")).string(), overrides});
    Trainer trainer(session, now());
    REQUIRE(trainer.run() == Exit::done);
    Run run{session.record.steps, {}};
    const Program& program = session.program();
    int index = 0;
    for (const Parameter& p : program.parameters)
        run.gradients[p.name] = test::gather_parameter(program, world(), session.arena(), index++, StateKind::gradient);
    return run;
}

// Norm of the difference over the norm of the reference, all parameters together.
double distance(const Gradients& ours, const Gradients& theirs) {
    double difference = 0, whole = 0;
    REQUIRE(ours.size() == theirs.size());
    for (const auto& their : theirs) {  // doctest's lambda cannot capture a structured binding in clang before 16
        CAPTURE(their.first);
        const std::vector<float> &values = ours.at(their.first), &reference = their.second;
        REQUIRE(values.size() == reference.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            difference += std::pow(static_cast<double>(values[i]) - static_cast<double>(reference[i]), 2);
            whole += std::pow(static_cast<double>(reference[i]), 2);
        }
    }
    return std::sqrt(difference / whole);
}

void compare(const std::string& model, const std::vector<std::string>& overrides) {
    const Reference reference = read_reference(model);
    const Run one = train(model, 1, overrides), all = train(model, static_cast<int>(reference.losses.size()), overrides);
    if (world().rank() != 0) return;
    double loss = 0, norm = 0;
    REQUIRE(all.steps.size() == reference.losses.size());
    for (std::size_t k = 0; k < all.steps.size(); ++k) {
        CAPTURE(k);
        const double step_loss = std::abs(all.steps[k].loss / reference.losses[k] - 1);
        const double step_norm = std::abs(all.steps[k].grad_norm / reference.norms[k] - 1);
        CHECK(step_loss < loss_tolerance);
        CHECK(step_norm < (k == 0 ? first_gradient_tolerance : last_gradient_tolerance));
        loss = std::max(loss, step_loss);
        norm = std::max(norm, step_norm);
    }
    const double first = distance(one.gradients, reference.first), last = distance(all.gradients, reference.last);
    CHECK(first < first_gradient_tolerance);
    CHECK(last < last_gradient_tolerance);
    fmt::print("{} {}: losses {:.1e}, norms {:.1e}, gradients {:.1e} at step 1 and {:.1e} at step {}\n", model, fmt::join(overrides, " "),
               loss, norm, first, last, all.steps.size());
}

struct Case {
    int ranks;
    const char* model;
    std::vector<std::string> overrides;
};

const std::vector<Case> cases = {
    {1, "gpt2", {}},
    {1, "llama", {}},
    {1, "llama", {"train.micro_batch_size=8"}},
    {2, "gpt2", {"grid.dp=2"}},
    {2, "gpt2", {"grid.pp=2"}},
    {2, "gpt2", {"grid.pp=2", "pipeline.schedule=zero-bubble"}},
    {2, "gpt2", {"grid.sp=2"}},
    {2, "llama", {"grid.dp=2"}},
    {2, "llama", {"grid.tp=2"}},
    {2, "llama", {"grid.tp=2", "tensor.sequence_parallel=true"}},
    {2, "llama", {"grid.pp=2", "pipeline.schedule=gpipe"}},
    {2, "llama", {"grid.sp=2"}},
    {2, "llama", {"grid.sp=2", "sequence.method=ulysses"}},
    {3, "gpt2", {"grid.tp=3", "train.micro_batch_size=8"}},  // one micro-batch: moves over tp are slow where ranks share a core
    {3, "gpt2", {"grid.pp=3"}},
    {3, "llama", {"grid.pp=3"}},
    {4, "gpt2", {"grid.dp=2", "grid.pp=2"}},
    {4, "gpt2", {"grid.dp=2", "grid.sp=2"}},
    {4, "llama", {"grid.tp=4", "train.micro_batch_size=8"}},  // key-value heads replicated
    {4, "llama", {"grid.tp=2", "grid.sp=2", "tensor.sequence_parallel=true", "train.micro_batch_size=8"}},
    {4, "llama", {"grid.sp=2", "grid.pp=2"}},
};

}  // namespace

TEST_CASE("losses and gradients are PyTorch's") {
    int ran = 0;
    for (const Case& c : cases) {
        if (c.ranks != world().size()) continue;
        CAPTURE(c.model);
        CAPTURE(fmt::format("{}", fmt::join(c.overrides, " ")));
        compare(c.model, c.overrides);
        ++ran;
    }
    CHECK(ran > 0);
}
