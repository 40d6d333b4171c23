#include "compile_interpreter_ranks.hpp"

#include "base/random.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace quadrille::test {
namespace {

double initial(const Parameter& p, std::int64_t element, const Settings& s) {
    const double deviation = p.init == Init::zeros ? 0.0 : p.init_std > 0 ? 10 * p.init_std : 0.1;
    return (p.init == Init::ones ? 1.0 : 0.0) +
           (deviation + 0.02) * random_normal(hash_text(p.name), static_cast<std::uint64_t>(element)) +
           (p.trained ? s.nudge * nudge_direction(p.name, element) : 0.0);
}

double worst(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double most = 0, scale = 1e-30;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
        most = std::max(most, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return most / scale;
}

}  // namespace

Ranks::Ranks(const std::vector<Program>& programs, const Settings& s)
    : programs_(programs), grid_(programs[0].grid()), settings_(s), here_(programs.size()) {
    for (std::int64_t r = 0; r < grid_.ranks(); ++r) {
        ranks_.push_back(grid_.coordinate(r));
        const auto pp = static_cast<std::size_t>(ranks_.back()[Axis::pp]);
        here_[pp].push_back(static_cast<std::size_t>(r));
        std::int64_t bytes = 0;
        for (const TierPeak& tier : programs[pp].peaks) bytes += tier.arena;
        arenas_.emplace_back(bytes);
        initialize(static_cast<std::size_t>(r));
    }
}

// Calls f(local, global) for every element of this rank's piece that is no padding.
template <class F>
void Ranks::for_each_element(std::size_t rank, const Parameter& q, F f) {
    const Piece piece = of_type(rank, q.type);
    for (std::size_t i = 0; i < piece.x.size(); ++i) {
        std::int64_t rest = static_cast<std::int64_t>(i), element = 0, scale = 1;
        bool padding = false;
        for (std::size_t d = q.shape.size(); d-- > 0;) {
            const std::int64_t at = piece.index[d][static_cast<std::size_t>(rest % piece.shape[d])];
            rest /= piece.shape[d];
            padding = padding || at >= q.shape[d];
            element += at * scale;
            scale *= q.shape[d];
        }
        if (!padding) f(static_cast<std::int64_t>(i), element);
    }
}

std::int64_t Ranks::begin(const Program& p, const Buffer& b) {
    std::int64_t before = 0;
    for (std::size_t t = 0; t < static_cast<std::size_t>(b.tier); ++t) before += p.peaks[t].arena;
    return before + b.offset;
}

std::int64_t Ranks::address(std::size_t rank, TensorId t) const {
    const Program& p = program(rank);
    const Tensor& x = p.tensors[static_cast<std::size_t>(t)];
    const Buffer& b = p.buffers[static_cast<std::size_t>(x.buffer)];
    if (b.offset < 0) fail(p.name(t) + " has no place");
    return begin(p, b) +
           (x.offset + grid_.position(ranks_[rank], x.slice_axes) * p.tables->count(x.type)) * bytes_of(p.type(t).dtype);
}

Piece Ranks::of_type(std::size_t rank, TypeId type) {
    const Program& p = program(rank);
    Piece piece;
    piece.type = &p.tables->type(type);
    piece.shape = local_shape(grid_, *piece.type);
    auto& known = index_[{rank, type}];
    if (known[0].empty() && piece.type->dims > 0)
        for (int d = 0; d < piece.type->dims; ++d)
            known[static_cast<std::size_t>(d)] = indices(grid_, *piece.type, d, ranks_[rank]);
    piece.index.lists = &known;
    piece.x.assign(static_cast<std::size_t>(p.tables->count(type)), 0.0);
    return piece;
}

Piece Ranks::read(std::size_t rank, TensorId t) {
    Piece piece = shaped(rank, t);
    const int size = bytes_of(piece.type->dtype);
    std::int64_t at = address(rank, t);
    for (double& x : piece.x) {
        const auto value = arenas_[rank].read(at, size);
        if (!value || std::isnan(*value))
            fail(fmt::format("rank {} reads {} where nothing of it is", rank, program(rank).name(t)));
        x = *value;
        at += size;
    }
    return piece;
}

void Ranks::write(std::size_t rank, TensorId t, const std::vector<double>& values) {
    const int size = bytes_of(program(rank).type(t).dtype);
    std::int64_t at = address(rank, t);
    for (const double x : values) {
        arenas_[rank].write(at, size, x);
        at += size;
    }
}

// The buffer's first tensor is the state itself, as it is kept.
Ranks::Home Ranks::home(std::size_t rank, BufferId b) const {
    const Program& p = program(rank);
    const auto t = std::find_if(p.tensors.begin(), p.tensors.end(), [b](const Tensor& x) { return x.buffer == b; });
    const TensorType& type = p.tables->type(t->type);
    const auto elements = indices(grid_, type, 0, ranks_[rank]);
    return {begin(p, p.buffers[static_cast<std::size_t>(b)]), elements[0], static_cast<std::int64_t>(elements.size()), bytes_of(type.dtype)};
}

void Ranks::initialize(std::size_t rank) {
    const Program& p = program(rank);
    for (std::size_t b = 0; b < p.buffers.size(); ++b) {
        if (!p.buffers[b].persistent) continue;
        if (p.buffers[b].unit < 0) fail("the state " + p.tables->name(p.buffers[b].name) + " is no unit's");
        const Home mine = home(rank, static_cast<BufferId>(b));
        for (std::int64_t i = 0; i < mine.count; ++i) arenas_[rank].write(mine.offset + i * mine.size, mine.size, 0.0);
        if (p.buffers[b].state != StateKind::weight && p.buffers[b].state != StateKind::master) continue;
        for (const FlatSegment& s : p.flats[static_cast<std::size_t>(p.buffers[b].unit)].segments) {
            const Parameter& q = p.parameters[static_cast<std::size_t>(s.parameter)];
            for_each_element(rank, q, [&](std::int64_t local, std::int64_t element) {
                if (mine.has(s.offset + local)) arenas_[rank].write(mine.address(s.offset + local), mine.size, initial(q, element, settings_));
            });
        }
    }
}

std::int64_t Ranks::element(const Piece& p, std::size_t i) {
    std::int64_t rest = static_cast<std::int64_t>(i), out = 0, scale = 1;
    for (std::size_t d = static_cast<std::size_t>(p.type->dims); d-- > 0;) {
        out += p.index[d][static_cast<std::size_t>(rest % p.shape[d])] * scale;
        rest /= p.shape[d];
        scale *= p.type->shape[d];
    }
    return out;
}

std::map<std::string, std::vector<double>> Ranks::weights() {
    std::map<std::string, std::vector<double>> out;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const Program& p = program(rank);
        for (std::size_t u = 0; u < p.flats.size(); ++u) {
            TensorId masters = p.initial_state(StateKind::master, static_cast<std::int32_t>(u));
            if (masters < 0) masters = p.initial_state(StateKind::weight, static_cast<std::int32_t>(u));
            if (masters < 0) fail(p.flats[u].unit + " has no weights");
            const Home mine = home(rank, p.tensor(masters).buffer);
            for (const FlatSegment& s : p.flats[u].segments) gather(rank, s, mine, out[p.parameters[static_cast<std::size_t>(s.parameter)].name]);
        }
    }
    for (const auto& [name, all] : out)
        if (std::any_of(all.begin(), all.end(), [](double x) { return std::isnan(x); })) fail(name + " is on no rank as a whole");
    return out;
}

void Ranks::gather(std::size_t rank, const FlatSegment& s, const Home& mine, std::vector<double>& all) {
    const Parameter& q = program(rank).parameters[static_cast<std::size_t>(s.parameter)];
    std::int64_t count = 1;
    for (const std::int64_t n : q.shape) count *= n;
    all.resize(static_cast<std::size_t>(count), std::numeric_limits<double>::quiet_NaN());
    for_each_element(rank, q, [&](std::int64_t local, std::int64_t element) {
        if (!mine.has(s.offset + local)) return;
        const auto x = arenas_[rank].read(mine.address(s.offset + local), mine.size);
        double& known = all[static_cast<std::size_t>(element)];
        if (!x) fail(q.name + " is not there when the step ends");
        if (!std::isnan(known) && known != *x) fail("the ranks disagree about " + q.name);
        known = *x;
    });
}

double nudge_direction(const std::string& parameter, std::int64_t element) {
    return random_normal(hash_text(parameter) + 1, static_cast<std::uint64_t>(element));
}

double difference(const Numbers& a, const Numbers& b) {
    double most = std::max({worst(a.loss, b.loss), worst(a.norm2, b.norm2), worst(a.tokens, b.tokens)});
    if (a.weights.size() != b.weights.size()) return std::numeric_limits<double>::infinity();
    for (const auto& [name, x] : a.weights) {
        const auto it = b.weights.find(name);
        most = std::max(most, it == b.weights.end() ? std::numeric_limits<double>::infinity() : worst(x, it->second));
    }
    return most;
}

}  // namespace quadrille::test
