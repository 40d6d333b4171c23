#include "runtime/state.hpp"

#include "base/error.hpp"
#include "base/random.hpp"
#include "cpu/elementwise.hpp"
#include "cpu/optimizer.hpp"
#include "runtime/addresses.hpp"
#include "runtime/moves.hpp"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace quadrille {
namespace {

// A flat buffer, or this rank's slice of it: elements first .. first + count of the unit.
struct Home {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t first = 0, count = 0;
};

// `count` elements of a home that are consecutive in the parameter's true shape too.
struct Piece { std::int64_t local = 0, element = 0, count = 0; };

class State {
  public:
    State(const Program& program, const Coordinate& at, const Arena& arena) : program_(program), at_(at), arena_(arena) {}

    // The update of the unit; null for one that is not trained here.
    const Op* update_of(int unit) const {
        for (const Op& op : program_.ops)
            if ((op.kind == Kind::adamw || op.kind == Kind::sgd) && program_.attributes(op).unit == unit) return &op;
        return nullptr;
    }

    // None where the program has no such copy (moments of sgd).
    std::vector<Home> homes(const Op& update, Copy what) const {
        const auto in = program_.inputs(update);
        const std::size_t masters = program_.type(in[0]).dtype == DType::f32 ? 0 : 1;
        const auto state = [&](std::size_t i) { return i < in.size() ? std::vector<Home>{home(in[i])} : std::vector<Home>{}; };
        switch (what) {
            case Copy::weight: return {home(whole(in[0]))};
            case Copy::master: return {masters ? home(in[3]) : home(whole(in[0]))};
            case Copy::gradient: return {home(in[1])};
            case Copy::m: return state(3 + masters);
            case Copy::v: return state(4 + masters);
        }
        return {};
    }

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
            if (begin < end) out.push_back({local + begin, e.offset + begin, end - begin});
            local += e.count;
        }
        return out;
    }

  private:
    // The weights that the model reads: the whole buffer, of which the update may see a slice only.
    TensorId whole(TensorId w) const {
        const auto buffer = program_.tensors[static_cast<std::size_t>(w)].buffer;
        const TensorType& t = program_.type(w);
        for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
            const auto id = static_cast<TensorId>(i);
            if (program_.tensors[i].buffer == buffer && program_.type(id).dims == 1 && program_.type(id).shape == t.shape && local_count(program_.grid(), program_.type(id)) > local_count(program_.grid(), program_.type(w))) w = id;
        }
        return w;
    }

    Home home(TensorId t) const {
        const ByteRange r = range_of(program_, at_, t);
        const TensorType& type = program_.type(t);
        return {arena_.data(r.tier) + r.begin, type.dtype, first_index(program_.grid(), type, 0, at_), local_count(program_.grid(), type)};
    }

    const Program& program_;
    const Coordinate at_;
    const Arena& arena_;
};

// Values of the pieces, made in fp32 and rounded to the home's type.
void fill(const Home& home, const std::vector<Piece>& pieces, const Parameter& p, std::uint64_t key) {
    constexpr std::int64_t batch = 1 << 20;
    std::vector<float> values;
    std::vector<Run> runs;
    std::vector<Piece> targets;
    std::int64_t held = 0;
    const auto flush = [&] {
        values.assign(static_cast<std::size_t>(held), 1.0f);
        if (p.init == Init::normal) fill_normal(values.data(), runs, key, p.init_std);
        for (std::size_t i = 0; i < runs.size(); ++i)
            cast(values.data() + runs[i].offset, DType::f32, home.data + targets[i].local * bytes_of(home.dtype), home.dtype, runs[i].count);
        runs.clear();
        targets.clear();
        held = 0;
    };
    for (const Piece& piece : pieces)
        for (std::int64_t done = 0; done < piece.count;) {
            const std::int64_t n = std::min(piece.count - done, batch - held);
            runs.push_back({held, piece.element + done, n});
            targets.push_back({piece.local + done, piece.element + done, n});
            held += n;
            done += n;
            if (held == batch) flush();
        }
    flush();
}

// Counts beyond what MPI's ints hold go in several messages.
template <class T, class Pass> void in_parts(std::vector<T>& data, Pass pass) {
    constexpr std::size_t most = std::size_t{1} << 28;
    for (std::size_t at = 0; at < data.size(); at += most) pass(data.data() + at, static_cast<int>(std::min(most, data.size() - at)));
}

struct Share { std::vector<std::int64_t> extents; std::vector<float> values; };  // extents: element, count in turn

Share mine(const Program& program, const Coordinate& at, const Arena& arena, int parameter, Copy what) {
    Share c;
    const State state(program, at, arena);
    for (std::size_t u = 0; u < program.flats.size(); ++u)
        for (const FlatSegment& s : program.flats[u].segments) {
            const Op* const update = s.parameter == parameter ? state.update_of(static_cast<int>(u)) : nullptr;
            if (!update) continue;
            for (const Home& home : state.homes(*update, what))
                for (const Piece& piece : state.pieces(s, home)) {
                    const std::size_t n = c.values.size();
                    c.extents.insert(c.extents.end(), {piece.element, piece.count});
                    c.values.resize(n + static_cast<std::size_t>(piece.count));
                    cast(home.data + piece.local * bytes_of(home.dtype), home.dtype, c.values.data() + n, DType::f32, piece.count);
                }
        }
    return c;
}

void send(Share& c, const World& world) {
    in_parts(c.extents, [&](std::int64_t* p, int n) { mpi_check(MPI_Send(p, n, MPI_INT64_T, 0, 0, world.comm())); });
    in_parts(c.values, [&](float* p, int n) { mpi_check(MPI_Send(p, n, MPI_FLOAT, 0, 0, world.comm())); });
}

Share receive(int from, std::int64_t extents, std::int64_t values, const World& world) {
    Share c;
    c.extents.resize(static_cast<std::size_t>(extents));
    c.values.resize(static_cast<std::size_t>(values));
    in_parts(c.extents, [&](std::int64_t* p, int n) { mpi_check(MPI_Recv(p, n, MPI_INT64_T, from, 0, world.comm(), MPI_STATUS_IGNORE)); });
    in_parts(c.values, [&](float* p, int n) { mpi_check(MPI_Recv(p, n, MPI_FLOAT, from, 0, world.comm(), MPI_STATUS_IGNORE)); });
    return c;
}

// Writes what is not there yet; false where what is there already has other bits.
bool put(const Share& c, std::vector<float>& whole, std::vector<bool>& known) {
    bool equal = true;
    std::size_t at = 0;
    for (std::size_t i = 0; i < c.extents.size(); i += 2)
        for (auto e = static_cast<std::size_t>(c.extents[i]); e < static_cast<std::size_t>(c.extents[i] + c.extents[i + 1]); ++e, ++at) {
            if (known[e]) equal = equal && std::bit_cast<std::uint32_t>(whole[e]) == std::bit_cast<std::uint32_t>(c.values[at]);
            else whole[e] = c.values[at];
            known[e] = true;
        }
    return equal;
}

}  // namespace

void initialize(const Program& training, const Coordinate& at, Arena& arena, std::uint64_t seed, int threads) {
    omp_set_num_threads(threads);
    const State state(training, at, arena);
    for (std::size_t u = 0; u < training.flats.size(); ++u) {
        const Op* const update = state.update_of(static_cast<int>(u));
        require(update != nullptr, "runtime: a unit has no update, so its state cannot be found");
        for (const Copy what : {Copy::weight, Copy::master, Copy::m, Copy::v})
            for (const Home& home : state.homes(*update, what)) {
                zero(home.data, home.count * bytes_of(home.dtype));
                if (what == Copy::m || what == Copy::v) continue;
                for (const FlatSegment& s : training.flats[u].segments) {
                    const Parameter& p = training.parameters[static_cast<std::size_t>(s.parameter)];
                    if (p.init != Init::zeros) fill(home, state.pieces(s, home), p, random_key(seed, hash_text(p.name)));
                }
            }
    }
}

std::vector<float> gather_parameter(const Program& training, World& world, const Arena& arena, int parameter, Copy what, bool* replicas_equal) {
    Share own = mine(training, training.grid().coordinate(world.rank()), arena, parameter, what);
    const std::array<std::int64_t, 2> sizes = {static_cast<std::int64_t>(own.extents.size()), static_cast<std::int64_t>(own.values.size())};
    const std::vector<std::int64_t> all = world.gather(sizes);
    if (world.rank() != 0) {
        send(own, world);
        return {};
    }
    std::int64_t elements = 1;
    for (const std::int64_t n : training.parameters[static_cast<std::size_t>(parameter)].shape) elements *= n;
    std::vector<float> whole(static_cast<std::size_t>(elements));
    std::vector<bool> known(whole.size());
    bool equal = put(own, whole, known);
    for (int r = 1; r < world.size(); ++r) {
        const auto at = 2 * static_cast<std::size_t>(r);
        equal = put(receive(r, all[at], all[at + 1], world), whole, known) && equal;
    }
    if (replicas_equal) *replicas_equal = equal;
    require(std::find(known.begin(), known.end(), false) == known.end(), "runtime: elements of a parameter are on no rank");
    return whole;
}

bool replicas_equal(const Program& training, World& world, const Arena& arena) {
    bool equal = true;
    for (std::size_t p = 0; p < training.parameters.size(); ++p) {
        bool one = true;
        gather_parameter(training, world, arena, static_cast<int>(p), Copy::weight, &one);
        equal = equal && one;
    }
    return world.all(equal);
}

}  // namespace quadrille
