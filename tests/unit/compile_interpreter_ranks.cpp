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
           s.nudge * nudge_direction(p.name, element);
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
        arenas_.emplace_back(programs[pp].peaks[0].arena);
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

std::int64_t Ranks::address(std::size_t rank, TensorId t) const {
    const Program& p = program(rank);
    const Tensor& x = p.tensors[static_cast<std::size_t>(t)];
    const Buffer& b = p.buffers[static_cast<std::size_t>(x.buffer)];
    if (b.offset < 0) fail(p.name(t) + " has no place");
    return b.offset +
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

void Ranks::initialize(std::size_t rank) {
    const Program& p = program(rank);
    for (const Buffer& b : p.buffers) {
        if (!b.persistent) continue;
        const std::string& name = p.tables->name(b.name);
        const auto flat = std::find_if(p.flats.begin(), p.flats.end(),
                                       [&](const Flat& f) { return f.unit == std::string_view(name).substr(2); });
        if (flat == p.flats.end()) fail("the state " + name + " is no unit's");
        const int size = static_cast<int>(b.bytes / flat->length);
        for (std::int64_t i = 0; i < flat->length; ++i) arenas_[rank].write(b.offset + i * size, size, 0.0);
        if (name[0] != 'W' && name[0] != 'P') continue;
        for (const FlatSegment& s : flat->segments)
            for_each_element(
                rank, p.parameters[static_cast<std::size_t>(s.parameter)], [&](std::int64_t local, std::int64_t element) {
                    arenas_[rank].write(b.offset + (s.offset + local) * size, size,
                                        initial(p.parameters[static_cast<std::size_t>(s.parameter)], element, settings_));
                });
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
            const Flat& flat = p.flats[u];
            const Buffer* masters = nullptr;
            for (const Buffer& b : p.buffers) {
                const std::string& name = p.tables->name(b.name);
                if (b.persistent && (name == "W." + flat.unit || name == "P." + flat.unit)) masters = &b;  // P comes second
            }
            const int size = static_cast<int>(masters->bytes / flat.length);
            for (const FlatSegment& s : flat.segments) {
                const Parameter& q = p.parameters[static_cast<std::size_t>(s.parameter)];
                gather(rank, q, masters->offset + s.offset * size, size, out[q.name]);
            }
        }
    }
    return out;
}

void Ranks::gather(std::size_t rank, const Parameter& q, std::int64_t at, int size, std::vector<double>& all) {
    std::int64_t count = 1;
    for (const std::int64_t n : q.shape) count *= n;
    all.resize(static_cast<std::size_t>(count), std::numeric_limits<double>::quiet_NaN());
    for_each_element(rank, q, [&](std::int64_t local, std::int64_t element) {
        const auto x = arenas_[rank].read(at + local * size, size);
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
