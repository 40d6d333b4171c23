#include "runtime/state.hpp"

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/rounding.hpp"
#include "cpu/elementwise.hpp"
#include "cpu/optimizer.hpp"
#include "runtime/addresses.hpp"
#include "runtime/moves.hpp"

#include <omp.h>

#include <algorithm>
#include <optional>

namespace quadrille {
namespace {

constexpr std::int64_t free_alignment = 4096;  // what direct reads and writes take

// A unit's flat buffer, or this rank's slice of it: elements first .. first + count of the unit.
struct Home {
    ByteRange at;               // in its tier
    std::byte* data = nullptr;  // null in the nvme tier
    DType dtype = DType::f32;
    std::int64_t first = 0, count = 0;
    AxisSet cut = {};           // along these the ranks hold other slices
};

class Holdings {
  public:
    Holdings(const Program& program, const Coordinate& at, const Arena& arena) : program_(program), at_(at), arena_(arena) {}

    // Of a unit, as it is before any op (a gradient: as its update reads it); none where the program has no such state.
    std::optional<Home> home(std::size_t unit, StateKind what) const {
        if (what == StateKind::gradient) return gradient(unit);
        const TensorId t = program_.initial_state(what, static_cast<std::int32_t>(unit));
        if (t < 0 && what == StateKind::master) return home(unit, StateKind::weight);
        return t < 0 ? std::nullopt : std::optional(home_of(t));
    }

    Home home_of(TensorId t) const {
        const ByteRange r = range_of(program_, at_, t);
        const TensorType& type = program_.type(t);
        auto* const data = r.tier == Tier::nvme ? nullptr : arena_.data(r.tier) + r.begin;
        const AxisSet cut = type.place.cut_axes() | program_.tensor(t).slice_axes;
        return {r, data, type.dtype, first_index(program_.grid(), type, 0, at_), local_count(program_.grid(), type), cut};
    }

    // What the home holds of one of its unit's parameters; padding belongs to none.
    std::vector<Piece> pieces(const FlatSegment& s, const Home& home) const {
        const Parameter& p = program_.parameters[static_cast<std::size_t>(s.parameter)];
        const TensorType& type = program_.tables->type(p.type);
        std::int64_t elements = 1, local = s.offset - home.first;
        for (std::size_t d = 0; d < p.shape.size(); ++d) {
            require(d == 0 || p.shape[d] == type.shape[d], "runtime: only the first dim of a parameter may be padded");
            elements *= p.shape[d];
        }
        std::vector<Piece> out;
        for (const Extent& e : slice_of(program_.grid(), type.placed({}), at_, type, at_)) {
            const std::int64_t begin = std::max<std::int64_t>(0, -local), end = std::min({e.count, elements - e.offset, home.count - local});
            const std::int64_t at = (local + begin) * bytes_of(home.dtype);
            if (begin < end && home.data) out.push_back({home.data + at, home.dtype, e.offset + begin, end - begin});
            if (begin < end && !home.data) out.push_back({nullptr, home.dtype, e.offset + begin, end - begin, home.at.begin + at});
            local += e.count;
        }
        return out;
    }

    // The unit's parameter in `what`. Its holders differ along the axes that cut neither the parameter nor the state's home, and a tied table's
    // are the ranks of both ends of the pipeline.
    Holding holding(std::size_t unit, const FlatSegment& s, StateKind what) const {
        const std::optional<Home> home = this->home(unit, what);
        if (!home) return {};
        const Grid& grid = program_.grid();
        const TensorType& type = program_.tables->type(program_.parameters[static_cast<std::size_t>(s.parameter)].type);
        const AxisSet alike = (data_axes | tensor_axes | AxisSet(Axis::sp)) - home->cut - type.place.cut_axes();
        Holding held{pieces(s, *home), grid.size(alike), grid.position(at_, alike)};
        std::sort(held.pieces.begin(), held.pieces.end(), [](const Piece& a, const Piece& b) { return a.element < b.element; });
        if (!program_.flats[unit].tied || grid.extent(Axis::pp) == 1) return held;
        if (at_[Axis::pp] > 0) held.copy += held.copies;
        held.copies *= 2;
        return held;
    }

  private:
    std::optional<Home> gradient(std::size_t unit) const {
        for (const Op& op : program_.ops) {
            const bool updates = op.kind == Kind::adamw || op.kind == Kind::sgd;
            if (updates && program_.attributes(op).unit == static_cast<int>(unit)) return home_of(program_.inputs(op)[1]);
        }
        return {};
    }

    const Program& program_;
    const Coordinate at_;
    const Arena& arena_;
};

// First values of the pieces, made in fp32 and rounded to their type, some at a time.
void fill(const std::vector<Piece>& pieces, const Parameter& p, std::uint64_t key) {
    constexpr std::int64_t batch = 1 << 20;
    std::vector<float> values;
    std::vector<Run> runs;
    std::vector<Piece> targets;
    std::int64_t held = 0;
    const auto flush = [&] {
        values.assign(static_cast<std::size_t>(held), 1.0f);
        if (p.init == Init::normal) fill_normal(values.data(), runs, key, p.init_std);
        if (p.init == Init::uniform) fill_uniform(values.data(), runs, key, p.init_bound);
        for (std::size_t i = 0; i < runs.size(); ++i)
            cast(values.data() + runs[i].offset, DType::f32, targets[i].data, targets[i].dtype, targets[i].count);
        runs.clear();
        targets.clear();
        held = 0;
    };
    for (const Piece& piece : pieces)
        for (std::int64_t done = 0; done < piece.count;) {
            const std::int64_t n = std::min(piece.count - done, batch - held);
            runs.push_back({held, piece.element + done, n});
            targets.push_back({piece.data + done * bytes_of(piece.dtype), piece.dtype, piece.element + done, n});
            held += n;
            done += n;
            if (held == batch) flush();
        }
    flush();
}

// Calls make(home) with memory in which the home's first values are made: its own, or, in the nvme tier, part by part, memory that is then written.
template <class Make>
void in_memory(const Home& home, Arena& arena, Make make) {
    if (home.data) return make(home);
    constexpr std::int64_t most = 1 << 20;  // elements of a part
    const std::int64_t size = bytes_of(home.dtype);
    std::vector<std::byte> memory(static_cast<std::size_t>(std::min(most, home.count) * size));
    for (std::int64_t done = 0; done < home.count; done += most) {
        Home part = home;
        part.data = memory.data();
        part.first += done;
        part.count = std::min(most, home.count - done);
        make(part);
        arena.file().wait(arena.file().write(home.at.begin + done * size, part.data, part.count * size));
    }
}

}  // namespace

void initialize(const Program& training, const Coordinate& at, Arena& arena, std::uint64_t seed, int threads) {
    omp_set_num_threads(threads);
    const Holdings held(training, at, arena);
    for (const TensorId t : training.initial_state()) {
        const Buffer& buffer = training.buffer(t);
        in_memory(held.home_of(t), arena, [&](const Home& part) {
            zero(part.data, part.count * bytes_of(part.dtype));
            if (buffer.state != StateKind::weight && buffer.state != StateKind::master) return;
            for (const FlatSegment& s : training.flats[static_cast<std::size_t>(buffer.unit)].segments) {
                const Parameter& p = training.parameters[static_cast<std::size_t>(s.parameter)];
                if (p.init != Init::zeros) fill(held.pieces(s, part), p, random_key(seed, hash_text(p.name)));
            }
        });
    }
}

Holding holding_of(const Program& training, const Coordinate& at, const Arena& arena, int parameter, StateKind what) {
    const Holdings held(training, at, arena);
    const auto found = training.find(parameter);
    return found ? held.holding(found->unit, training.flats[found->unit].segments[found->segment], what) : Holding{};
}

std::vector<Piece> pieces_of(const Program& training, const Coordinate& at, const Arena& arena, int parameter, StateKind what) {
    Holding held = holding_of(training, at, arena, parameter, what);
    for (const Piece& piece : held.pieces) require(piece.data, "runtime: a parameter on disk has no pieces in memory");
    return std::move(held.pieces);
}

std::span<std::byte> free_between_steps(const Program& training, const Arena& arena) {
    std::int64_t begin = 0;
    for (const Buffer& b : training.buffers)
        if (b.tier == Tier::device && b.persistent) begin = std::max(begin, b.offset + b.bytes);
    begin = aligned_up(begin, free_alignment);
    const auto device = static_cast<std::size_t>(Tier::device);
    const std::int64_t end = training.peaks[device].arena - training.staging[device];  // behind it lies what messages pass through
    if (end <= begin) return {};
    return {arena.data(Tier::device) + begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace quadrille
