#include "runtime/state.hpp"

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/rounding.hpp"
#include "cpu/initial_values.hpp"
#include "cpu/kernels.hpp"
#include "runtime/addresses.hpp"
#include "runtime/moves.hpp"

#include <omp.h>

#include <algorithm>

namespace quadrille {
namespace {

constexpr std::int64_t free_alignment = 4096;  // what direct reads and writes take

// A unit's flat buffer, or this rank's slice of it: elements first .. first + count of the unit.
struct Home {
    ByteRange at;               // in its tier
    std::byte* data = nullptr;  // null in the nvme tier
    bool far = false;           // only the device reaches it
    DType dtype = DType::f32;
    std::int64_t first = 0, count = 0;
    AxisSet cut = {};           // along these the ranks hold other slices
};

Home home_of(const Program& program, const Coordinate& at, const Arena& arena, TensorId t) {
    const ByteRange r = range_of(program, at, t);
    const TensorType& type = program.type(t);
    auto* const data = r.tier == Tier::nvme ? nullptr : arena.data(r.tier) + r.begin;
    const AxisSet cut = type.place.cut_axes() | program.tensor(t).slice_axes;
    const bool far = r.tier == Tier::device && !arena.device().shares_memory();
    return {r, data, far, type.dtype, first_index(program.grid(), type, 0, at), local_count(program.grid(), type), cut};
}

const Parameter& parameter_of(const Program& program, const FlatSegment& s) { return program.parameters[static_cast<std::size_t>(s.parameter)]; }

std::int64_t elements_of(const Parameter& p) {
    std::int64_t elements = 1;
    for (const std::int64_t n : p.shape) elements *= n;
    return elements;
}

// What the home holds of one of its unit's parameters; padding belongs to none.
std::vector<Piece> pieces_in(const Program& program, const Coordinate& at, const FlatSegment& s, const Home& home) {
    const Parameter& p = parameter_of(program, s);
    const TensorType& type = program.tables->type(p.type);
    for (std::size_t d = 1; d < p.shape.size(); ++d)
        require(p.shape[d] == type.shape[d], "runtime: only the first dim of a parameter may be padded");
    const std::int64_t elements = elements_of(p);
    std::int64_t local = s.offset - home.first;
    std::vector<Piece> out;
    for (const Extent& e : slice_of(program.grid(), type.placed({}), at, type, at)) {
        const std::int64_t begin = std::max<std::int64_t>(0, -local), end = std::min({e.count, elements - e.offset, home.count - local});
        const std::int64_t place = (local + begin) * bytes_of(home.dtype);
        if (begin < end && home.data) out.push_back({home.data + place, home.dtype, e.offset + begin, end - begin, -1, false, home.far});
        if (begin < end && !home.data) out.push_back({nullptr, home.dtype, e.offset + begin, end - begin, home.at.begin + place});
        local += e.count;
    }
    return out;
}

// Coordinates of the pipeline that have the unit.
std::int64_t ends_of(const Program& program, std::size_t unit) { return program.flats[unit].tied && program.grid().extent(Axis::pp) > 1 ? 2 : 1; }

// As the unit's update reads it; -1: none does.
TensorId gradient_of(const Program& program, std::size_t unit) {
    for (const Op& op : program.ops) {
        const bool updates = op.kind == Kind::adamw || op.kind == Kind::sgd;
        if (updates && program.attributes(op).unit == static_cast<int>(unit)) return program.inputs(op)[1];
    }
    return -1;
}

// First values of the pieces, made in fp32 and rounded to their type, some at a time.
void fill(const std::vector<Piece>& pieces, const Parameter& p, std::uint64_t key, Kernels& kernels) {
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
            kernels.cast(values.data() + runs[i].offset, DType::f32, targets[i].data, targets[i].dtype, targets[i].count);
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

// Calls make(home) with memory in which the home's first values are made: its own, or, where the host does not reach that, part by part, memory that
// is then written.
template <class Make>
void in_memory(const Home& home, Arena& arena, Make make) {
    if (home.data && !home.far) return make(home);
    constexpr std::int64_t most = 1 << 20;  // elements of a part
    const std::int64_t size = bytes_of(home.dtype);
    std::vector<std::byte> memory(static_cast<std::size_t>(std::min(most, home.count) * size));
    for (std::int64_t done = 0; done < home.count; done += most) {
        Home part = home;
        part.data = memory.data();
        part.far = false;
        part.first += done;
        part.count = std::min(most, home.count - done);
        make(part);
        if (home.far) arena.device().write(home.data + done * size, part.data, part.count * size);
        else arena.file().wait(arena.file().write(home.at.begin + done * size, part.data, part.count * size));
    }
}

}  // namespace

void initialize(const Program& training, const Coordinate& at, Arena& arena, std::uint64_t seed, int threads) {
    omp_set_num_threads(threads);
    CpuKernels kernels(threads);
    for (const TensorId t : training.initial_state()) {
        const Buffer& buffer = training.buffer(t);
        in_memory(home_of(training, at, arena, t), arena, [&](const Home& part) {
            kernels.zero(part.data, part.count * bytes_of(part.dtype));
            if (buffer.state != StateKind::weight && buffer.state != StateKind::master) return;
            for (const FlatSegment& s : training.flats[static_cast<std::size_t>(buffer.unit)].segments) {
                const Parameter& p = parameter_of(training, s);
                if (p.init != Init::zeros) fill(pieces_in(training, at, s, part), p, random_key(seed, hash_text(p.name)), kernels);
            }
        });
    }
}

Holdings::Holdings(const Program& training, const Coordinate& at, const Arena& arena)
    : program_(training), at_(at), arena_(arena), places_(training.parameters.size()) {
    for (std::size_t u = 0; u < training.flats.size(); ++u)
        for (std::size_t s = 0; s < training.flats[u].segments.size(); ++s)
            places_[static_cast<std::size_t>(training.flats[u].segments[s].parameter)] = Program::At{u, s};
    for (const TensorId t : training.initial_state()) state_.try_emplace({training.buffer(t).state, training.buffer(t).unit}, t);
}

TensorId Holdings::state(const Program::At& at, StateKind what) const {
    const auto unit = static_cast<std::int32_t>(at.unit);
    const auto it = state_.find({what, unit});
    return it == state_.end() ? -1 : it->second;
}

AxisSet Holdings::spread(TensorId t) const {
    return is_term(program_.buffer(t).state) ? program_.type(t).place.partial_sum - AxisSet(Axis::pp) : AxisSet();
}

bool Holdings::has(int parameter, StateKind what) const {
    const auto& at = places_[static_cast<std::size_t>(parameter)];
    return at && state(*at, what) >= 0;
}

std::int64_t Holdings::terms(int parameter, StateKind what) const {
    if (!is_term(what) || !has(parameter, what)) return 0;
    const Program::At& at = *places_[static_cast<std::size_t>(parameter)];
    return program_.grid().size(spread(state(at, what))) * ends_of(program_, at.unit);
}

Holding Holdings::of(int parameter, StateKind what) const {
    const auto& at = places_[static_cast<std::size_t>(parameter)];
    if (!at) return {};
    TensorId t = what == StateKind::gradient ? gradient_of(program_, at->unit) : state(*at, what);
    if (t < 0 && what == StateKind::master) t = state(*at, StateKind::weight);
    return t < 0 ? Holding{} : holding(*at, t);
}

// Its holders differ along the axes that cut neither the parameter nor the state's home, and a tied table's are the ranks of both ends of the
// pipeline: of a sum over these each end has a term.
Holding Holdings::holding(const Program::At& where, TensorId t) const {
    const FlatSegment& segment = program_.flats[where.unit].segments[where.segment];
    const Parameter& p = parameter_of(program_, segment);
    const Home home = home_of(program_, at_, arena_, t);
    const Grid& grid = program_.grid();
    const AxisSet terms = spread(t);
    const AxisSet alike = (data_axes | tensor_axes | AxisSet(Axis::sp)) - home.cut - program_.tables->type(p.type).place.cut_axes() - terms;
    Holding held{pieces_in(program_, at_, segment, home), grid.size(alike), grid.position(at_, alike)};
    std::sort(held.pieces.begin(), held.pieces.end(), [](const Piece& a, const Piece& b) { return a.element < b.element; });
    const bool term = is_term(program_.buffer(t).state);
    if (term) held.terms = grid.size(terms), held.term = grid.position(at_, terms);
    std::int64_t &number = term ? held.term : held.copy, &all = term ? held.terms : held.copies;
    if (ends_of(program_, where.unit) > 1 && at_[Axis::pp] > 0) number += all;
    all *= ends_of(program_, where.unit);
    for (Piece& piece : held.pieces) piece.element += held.term * elements_of(p);
    return held;
}

std::vector<Piece> pieces_of(const Program& training, const Coordinate& at, const Arena& arena, int parameter, StateKind what) {
    Holding held = Holdings(training, at, arena).of(parameter, what);
    for (const Piece& piece : held.pieces) require(piece.data != nullptr, "runtime: a parameter has no pieces in memory");
    return std::move(held.pieces);
}

std::span<std::byte> free_between_steps(const Program& training, const Arena& arena) {
    std::int64_t begin = 0;
    for (const Buffer& b : training.buffers)
        if (b.tier == Tier::device && b.persistent) begin = std::max(begin, b.offset + b.bytes);
    begin = aligned_up(begin, free_alignment);
    const auto device = static_cast<std::size_t>(Tier::device);
    const std::int64_t end = training.peaks[device].arena - training.staging[device];  // behind it lies what messages pass through
    if (end <= begin || !arena.device().shares_memory()) return {};
    return {arena.data(Tier::device) + begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace quadrille
