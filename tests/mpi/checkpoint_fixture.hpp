// The state of a tiny model on any grid, with values that are functions of parameter, kind and element: whoever holds a piece can say what must be
// in it. Nothing is trained.
#pragma once
#include "checkpoint/saver.hpp"
#include "checkpoint/values.hpp"
#include "compile/compile.hpp"
#include "mpi_main.hpp"
#include "runtime_train.hpp"
#include "unit/temporary_directory.hpp"

#include <memory>
#include <optional>

namespace quadrille::test {

// The first ranks of the world, as a job of their own.
class FirstRanks {
  public:
    explicit FirstRanks(int count) {
        const bool among = world().rank() < count;
        mpi_check(MPI_Comm_split(world().comm(), among ? 0 : MPI_UNDEFINED, world().rank(), &comm_));
        if (among) ranks_.emplace(comm_);
    }
    ~FirstRanks() {
        ranks_.reset();
        if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
    }
    FirstRanks(const FirstRanks&) = delete;
    FirstRanks& operator=(const FirstRanks&) = delete;
    bool has_this() const { return ranks_.has_value(); }
    const Collectives& get() const { return *ranks_; }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    std::optional<Collectives> ranks_;
};

// One directory for all ranks of the world; rank 0's goes away.
class SharedDirectory {
  public:
    SharedDirectory() {
        if (world().rank() == 0) mine_.emplace();
        path_ = world().broadcast(mine_ ? mine_->path().string() : "");
    }
    ~SharedDirectory() { world().barrier(); }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::optional<TemporaryDirectory> mine_;
    std::filesystem::path path_;
};

inline int ranks_of(const Config& c) { return c.grid.dp * c.grid.tp * c.grid.pp * c.grid.sp; }

class StateOnGrid {
  public:
    StateOnGrid(const Config& c, int rank, const std::string& nvme_path, std::unique_ptr<Device> device = std::make_unique<CpuDevice>(1))
        : device_(std::move(device)) {
        NvmeOptions file;
        file.directory = nvme_path;
        file.block_size = c.offload.block_size;
        file.queue_depth = c.offload.queue_depth;
        Workspace workspace;
        workspace.of_disk = NvmeFile::staging_bytes(file);
        workspace.snapshot = true;
        compiled_ = compile(c, Purpose::training, workspace);
        at_ = compiled_.tables->grid().coordinate(rank);
        const auto peak = [&](Tier t) { return program().peaks[static_cast<std::size_t>(t)].arena; };
        const std::array<std::int64_t, tier_count> bytes{peak(Tier::device), peak(Tier::host), 0};
        arena_ = std::make_unique<Arena>(*device_, bytes, "the test", rank, 1);
        file.bytes = peak(Tier::nvme);
        if (file.bytes > 0) arena_->open_file(file);
        initialize(program(), at_, *arena_, 42, 1);
    }

    const Program& program() const { return compiled_.programs[static_cast<std::size_t>(at_[Axis::pp])]; }
    const Coordinate& at() const { return at_; }
    Arena& arena() { return *arena_; }
    // The memory that lay_out has set aside for saves behind training.
    std::span<std::byte> snapshot() const {
        const auto host = static_cast<std::size_t>(Tier::host);
        const auto bytes = static_cast<std::size_t>(program().snapshot);
        return {arena_->data(Tier::host) + program().peaks[host].arena - program().staging[host] - program().snapshot, bytes};
    }

    // Of a base that was trained whole, whose frozen weights have all bits.
    bool whole_base = false;

    // From 0.5 to 1, either sign, all bits of the mantissa used, and another one for each element of each parameter and kind.
    static float value(const std::string& parameter, StateKind what, std::int64_t element) {
        const std::uint64_t bits = random_bits(random_key(hash_text(parameter), static_cast<int>(what)), static_cast<std::uint64_t>(element));
        return std::bit_cast<float>(0x3F000000u | (static_cast<std::uint32_t>(bits) & 0x807FFFFFu));
    }

    // Calls what(parameter, kind, pieces) for all state of this rank. Weights are those beside masters.
    template <class F>
    void for_each(F call) {
        for_each_holding([&](const Parameter& p, StateKind what, const Holding& held) { call(p, what, held.pieces); });
    }
    template <class F>
    void for_each_holding(F call) {
        const Holdings held(program(), at_, *arena_);
        for (std::size_t p = 0; p < program().parameters.size(); ++p)
            for (const StateKind what : {StateKind::weight, StateKind::master, StateKind::m, StateKind::v, StateKind::residual, StateKind::stale})
                call(program().parameters[p], what, held.of(static_cast<int>(p), what));
    }
    // The pieces' values.
    std::vector<float> values_of(const Pieces& pieces) {
        std::vector<float> found(static_cast<std::size_t>(total(pieces)));
        gather_into(found.data(), pieces, *arena_, Passage({}));
        return found;
    }

    void fill() {
        const Passage passage({});
        for_each([&](const Parameter& p, StateKind what, const Pieces& pieces) {
            const std::vector<float> values = expected(p, what, pieces);
            scatter(values.data(), pieces, *arena_, passage);
        });
    }

    // How many elements are not what they must be, but those that `fresh` says stay as they were made.
    template <class Fresh>
    std::int64_t wrong(Fresh fresh) {
        std::int64_t wrong = 0;
        for_each([&](const Parameter& p, StateKind what, const Pieces& pieces) {
            if (fresh(p, what)) return;
            const std::vector<float> found = values_of(pieces);
            std::size_t i = 0;
            for (const Piece& piece : pieces)
                for (std::int64_t k = 0; k < piece.count; ++k, ++i) wrong += found[i] != rounded(value_of(p, what, piece.element + k), piece.dtype);
        });
        return wrong;
    }
    std::int64_t wrong() {
        return wrong([](const Parameter&, StateKind) { return false; });
    }

  private:
    // A weight is its master, rounded. What has no master but a narrow weight has a value that the weight can hold, in every precision.
    float value_of(const Parameter& p, StateKind what, std::int64_t element) const {
        const float x = value(p.name, what == StateKind::weight ? StateKind::master : what, element);
        const bool whole = whole_base || p.trained || (what != StateKind::weight && what != StateKind::master);
        return whole ? x : std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xFFFF0000u);
    }
    static float rounded(float x, DType t) {
        std::array<std::byte, 4> stored{};
        float back = 0;
        CpuKernels(1).cast(&x, DType::f32, stored.data(), t, 1);
        CpuKernels(1).cast(stored.data(), t, &back, DType::f32, 1);
        return back;
    }
    std::vector<float> expected(const Parameter& p, StateKind what, const Pieces& pieces) const {
        std::vector<float> values;
        for (const Piece& piece : pieces)
            for (std::int64_t k = 0; k < piece.count; ++k) values.push_back(value_of(p, what, piece.element + k));
        return values;
    }

    Compiled compiled_;
    Coordinate at_;
    std::unique_ptr<Device> device_;
    std::unique_ptr<Arena> arena_;
};

inline TrainingPoint point_at(std::int64_t step) {
    TrainingPoint point;
    point.step = step;
    point.updates = step - 1;
    point.sequences = 8 * step;
    point.seed = 0xFEDCBA9876543210u;
    point.loss_scale = 1024;
    point.good_steps = 3;
    point.config_yaml = "model:\n  num_layers: 4\n";
    return point;
}

}  // namespace quadrille::test
