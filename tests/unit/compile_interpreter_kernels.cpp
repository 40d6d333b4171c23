#include "compile_interpreter_kernels.hpp"

#include "base/random.hpp"
#include "ir/table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

namespace quadrille::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// out[letters] (+)= product of the one or two operands, summed over the letters that are not in it. Written for speed, since every
// mutant is judged by it: the last letter is a plain loop, the others count.
void einsum(const std::vector<std::string>& letters, const std::vector<const Piece*>& in, const std::string& out_letters,
            Piece& out) {
    std::string all = out_letters;
    for (const std::string& l : letters)
        for (const char x : l)
            if (all.find(x) == std::string::npos) all += x;
    const auto stride_of = [](const std::string& mine, const Piece& p, char l) {
        const std::size_t at = mine.find(l);
        std::int64_t s = at == std::string::npos ? 0 : 1;
        for (std::size_t d = at + 1; s && d < mine.size(); ++d) s *= p.shape[d];
        return s;
    };
    struct Letter { std::int64_t size, a, b, out, count; };
    std::vector<Letter> outer;
    for (const char l : all) {
        outer.push_back({1, 0, 0, stride_of(out_letters, out, l), 0});
        for (std::size_t i = 0; i < in.size(); ++i) {
            (i == 0 ? outer.back().a : outer.back().b) = stride_of(letters[i], *in[i], l);
            if (const std::size_t d = letters[i].find(l); d != std::string::npos) outer.back().size = in[i]->shape[d];
        }
    }
    Letter inner{1, 0, 0, 0, 0};
    if (!outer.empty()) {
        inner = outer.back();
        outer.pop_back();
    }
    const double one = 1, *a = in[0]->x.data(), *b = in.size() > 1 ? in[1]->x.data() : &one;
    double* c = out.x.data();
    for (;;) {
        for (std::int64_t i = 0; i < inner.size; ++i) c[i * inner.out] += a[i * inner.a] * b[i * inner.b];
        std::size_t l = outer.size();
        while (l-- > 0) {
            Letter& x = outer[l];
            const bool wraps = ++x.count == x.size;
            const std::int64_t step = wraps ? 1 - x.size : 1;
            a += step * x.a, b += step * x.b, c += step * x.out;
            if (!wraps) break;
            x.count = 0;
        }
        if (l == static_cast<std::size_t>(-1)) return;
    }
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
    const double r = std::sqrt(2 / std::numbers::pi), t = std::tanh(r * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * r * (1 + 3 * 0.044715 * x * x);
}

void matmul(KernelCall& c) {
    const Signature s = parse_signature(c.attributes().signature);
    einsum({s.in[0], s.in[1]}, {&c.in[0], &c.in[1]}, s.out[0], c.out[0]);
    if (s.in.size() > 2) {
        Piece& y = c.out[0];
        const std::size_t shift = s.out[0].size() - s.in[2].size();
        std::int64_t bias = 1;
        for (std::size_t d = shift; d < s.out[0].size(); ++d) bias *= y.shape[d];
        for (std::size_t i = 0; i < y.x.size(); ++i) y.x[i] += c.in[2].x[i % static_cast<std::size_t>(bias)];
    }
    if (c.op.kind == Kind::matmul_gelu) std::transform(c.out[0].x.begin(), c.out[0].x.end(), c.out[1].x.begin(), gelu);
}

void add(KernelCall& c) {
    for (std::size_t i = 0; i < c.out[0].x.size(); ++i) c.out[0].x[i] = c.in[0].x[i] + c.in[1].x[i % c.in[1].x.size()];
}

void embedding(KernelCall& c) {
    const Piece& table = c.in[1];
    const auto h = static_cast<std::size_t>(table.shape[1]);
    for (std::size_t i = 0; i < c.in[0].x.size(); ++i)
        for (std::size_t r = 0; r < table.index[0].size(); ++r)
            if (static_cast<double>(table.index[0][r]) == c.in[0].x[i])
                for (std::size_t k = 0; k < h; ++k) c.out[0].x[i * h + k] = table.x[r * h + k];
}

void embedding_dw(KernelCall& c) {
    Piece& table = c.out[0];
    const auto h = static_cast<std::size_t>(table.shape[1]);
    for (std::size_t i = 0; i < c.in[0].x.size(); ++i)
        for (std::size_t r = 0; r < table.index[0].size(); ++r)
            if (static_cast<double>(table.index[0][r]) == c.in[0].x[i])
                for (std::size_t k = 0; k < h; ++k) table.x[r * h + k] += c.in[1].x[i * h + k];
}

// Rows normalized, and each row's 1/deviation.
struct Normalized {
    std::vector<double> y, inverse;
    std::size_t h;
};
Normalized normalized(const Piece& x, const Attributes& a) {
    Normalized n{x.x, {}, static_cast<std::size_t>(x.shape[static_cast<std::size_t>(x.type->dims - 1)])};
    for (std::size_t row = 0; row < n.y.size(); row += n.h) {
        double mean = 0, squares = 0;
        for (std::size_t k = 0; k < n.h; ++k) mean += n.y[row + k] / static_cast<double>(n.h);
        if (a.rms) mean = 0;
        for (std::size_t k = 0; k < n.h; ++k) squares += (n.y[row + k] - mean) * (n.y[row + k] - mean) / static_cast<double>(n.h);
        n.inverse.push_back(1 / std::sqrt(squares + a.eps));
        for (std::size_t k = 0; k < n.h; ++k) n.y[row + k] = (n.y[row + k] - mean) * n.inverse.back();
    }
    return n;
}

void norm(KernelCall& c) {
    const bool residual = c.op.kind == Kind::residual_norm;
    Piece x = c.in[0];
    if (residual)
        for (std::size_t i = 0; i < x.x.size(); ++i) x.x[i] += c.in[1].x[i];
    const Normalized n = normalized(x, c.attributes());
    const std::size_t gain = residual ? 2 : 1;
    std::vector<double>& y = c.out.back().x;
    for (std::size_t i = 0; i < y.size(); ++i)
        y[i] = n.y[i] * c.in[gain].x[i % n.h] + (c.in.size() > gain + 1 ? c.in[gain + 1].x[i % n.h] : 0.0);
    if (residual) c.out[0].x = x.x;
}

void norm_dx(KernelCall& c) {
    const Normalized n = normalized(c.in[0], c.attributes());
    for (std::size_t row = 0, r = 0; row < n.y.size(); row += n.h, ++r) {
        double mean = 0, along = 0;
        const auto g = [&](std::size_t k) { return c.in[2].x[row + k] * c.in[1].x[k]; };
        for (std::size_t k = 0; k < n.h; ++k) {
            mean += g(k) / static_cast<double>(n.h);
            along += g(k) * n.y[row + k] / static_cast<double>(n.h);
        }
        for (std::size_t k = 0; k < n.h; ++k)
            c.out[0].x[row + k] = n.inverse[r] * (g(k) - n.y[row + k] * along - (c.attributes().rms ? 0.0 : mean));
    }
}

void norm_dw(KernelCall& c) {
    const Normalized n = normalized(c.in[0], c.attributes());
    for (std::size_t i = 0; i < n.y.size(); ++i) {
        c.out[0].x[i % n.h] += n.y[i] * c.in[1].x[i];
        if (c.out.size() > 1) c.out[1].x[i % n.h] += c.in[1].x[i];
    }
}

void swiglu(KernelCall& c) {
    const bool backward = c.op.kind == Kind::swiglu_dx;
    for (std::size_t i = 0; i < c.in[0].x.size(); ++i) {
        const double g = c.in[0].x[i], u = c.in[1].x[i], s = 1 / (1 + std::exp(-g));
        if (!backward) {
            c.out[0].x[i] = g * s * u;
            continue;
        }
        const double dy = c.in[2].x[i];
        c.out[0].x[i] = dy * u * s * (1 + g * (1 - s));
        c.out[1].x[i] = dy * g * s;
    }
}

void dropout(KernelCall& c) {
    const Piece& x = c.in[0];
    const Attributes& a = c.attributes();
    const std::uint64_t key = random_key(c.settings.seed, c.step, a.stream);
    std::size_t i = 0;
    for (std::int64_t b = 0; b < x.shape[0]; ++b)
        for (const std::int64_t s : x.index[1])
            for (const std::int64_t h : x.index[2]) {
                const auto element =
                    static_cast<std::uint64_t>((global_sample(c, x, b) * x.type->shape[1] + s) * x.type->shape[2] + h);
                c.out[0].x[i] = keeps(key, element, keep_threshold(a.rate)) ? x.x[i] / (1 - a.rate) : 0.0;
                ++i;
            }
}

void rotary(KernelCall& c) {
    const Piece& x = c.in[0];
    const auto heads = static_cast<std::size_t>(x.shape[2]), d = static_cast<std::size_t>(x.shape[3]);
    for (std::size_t row = 0; row < x.x.size(); row += d) {
        const std::int64_t position = x.index[1][row / d / heads % x.index[1].size()];
        for (std::size_t k = 0; k < d / 2; ++k) {
            const double angle = static_cast<double>(position) *
                                 std::pow(c.attributes().base, -2.0 * static_cast<double>(k) / static_cast<double>(d)) *
                                 (c.attributes().inverse ? -1 : 1);
            const double u = x.x[row + k], v = x.x[row + k + d / 2];
            c.out[0].x[row + k] = u * std::cos(angle) - v * std::sin(angle);
            c.out[0].x[row + k + d / 2] = v * std::cos(angle) + u * std::sin(angle);
        }
    }
}

void logits(KernelCall& c) {
    const Piece& x = c.in[0];
    const auto v = static_cast<std::size_t>(x.shape[2]), tokens = x.x.size() / v;
    for (std::size_t t = 0; t < tokens; ++t) {
        double most = -infinity, sum = 0, target = 0;
        for (std::size_t k = 0; k < v; ++k) {
            if (x.index[2][k] >= c.attributes().vocab) continue;
            const double y = x.x[t * v + k];
            if (c.op.kind == Kind::logit_max) {
                most = std::max(most, y);
                continue;
            }
            const double e = std::exp(y - c.in[1].x[t]);
            const bool hit = static_cast<double>(x.index[2][k]) == c.in[2].x[t];
            sum += e;
            if (hit) target = y - c.in[1].x[t];
            if (c.op.kind == Kind::logit_sums_dx) c.out[0].x[t * v + k] = e * c.in[3].x[t] + (hit ? c.in[3].x[tokens + t] : 0.0);
        }
        if (c.op.kind == Kind::logit_max) c.out[0].x[t] = most;
        if (c.op.kind == Kind::logit_sums) c.out[0].x[t] = sum, c.out[0].x[tokens + t] = target;
    }
}

void token_loss(KernelCall& c) {
    const auto& sums = c.in[0].x;
    const std::size_t tokens = c.in[1].x.size();
    for (std::size_t t = 0; t < tokens; ++t) {
        const double mask = c.in[1].x[t];
        if (c.op.kind == Kind::token_loss) {
            c.out[0].x[0] += mask * (std::log(sums[t]) - sums[tokens + t]);
            continue;
        }
        c.out[0].x[t] = c.in[2].x[0] * mask / sums[t];
        c.out[0].x[tokens + t] = -c.in[2].x[0] * mask;
    }
}

void load(KernelCall& c) {
    Piece& y = c.out[0];
    std::size_t i = 0;
    for (std::int64_t b = 0; b < y.shape[0]; ++b)
        for (const std::int64_t s : y.index[1]) y.x[i++] = loaded(c, c.attributes().input, global_sample(c, y, b), s);
}

}  // namespace

std::int64_t global_sample(const KernelCall& c, const Piece& p, std::int64_t b) {
    return c.op.microbatch * p.type->shape[0] + p.index[0][static_cast<std::size_t>(b)];
}

// Tokens at random, documents of 4 to 6 positions, ragged masks and every fifth sequence without a counted token.
double loaded(const KernelCall& c, Input input, std::int64_t sample, std::int64_t position) {
    const auto token = [&](std::int64_t p) {
        return static_cast<double>(random_bits(random_key(7, c.step, sample), static_cast<std::uint64_t>(p)) %
                                   static_cast<std::uint64_t>(c.settings.vocab));
    };
    switch (input) {
        case Input::tokens: return token(position);
        case Input::targets: return token(position + 1);
        case Input::mask: return (sample + position) % 7 != 3 && sample % 5 != 2 ? 1.0 : 0.0;
        case Input::positions: return static_cast<double>(position);
        case Input::document_start: return static_cast<double>(position - position % (4 + sample % 3));
    }
    return 0;
}

void compute(KernelCall& c) {
    switch (c.op.kind) {
        case Kind::copy:
        case Kind::move: c.out[0].x = c.in[0].x; return;
        case Kind::matmul:
        case Kind::matmul_gelu: return matmul(c);
        case Kind::add:
        case Kind::accumulate: return add(c);
        case Kind::sum: {
            const Signature s = parse_signature(c.attributes().signature);
            return einsum({s.in[0]}, {&c.in[0]}, s.out[0], c.out[0]);
        }
        case Kind::embedding: return embedding(c);
        case Kind::embedding_dw: return embedding_dw(c);
        case Kind::norm:
        case Kind::residual_norm: return norm(c);
        case Kind::norm_dx: return norm_dx(c);
        case Kind::norm_dw: return norm_dw(c);
        case Kind::gelu: std::transform(c.in[0].x.begin(), c.in[0].x.end(), c.out[0].x.begin(), gelu); return;
        case Kind::gelu_dx:
            std::transform(c.in[0].x.begin(), c.in[0].x.end(), c.in[1].x.begin(), c.out[0].x.begin(),
                           [](double x, double dy) { return dy * gelu_slope(x); });
            return;
        case Kind::swiglu:
        case Kind::swiglu_dx: return swiglu(c);
        case Kind::dropout: return dropout(c);
        case Kind::rotary: return rotary(c);
        case Kind::scale:
            std::transform(c.in[0].x.begin(), c.in[0].x.end(), c.out[0].x.begin(), [&](double x) { return c.attributes().factor * x; });
            return;
        case Kind::attention:
        case Kind::attention_dx: return attention(c);
        case Kind::cast: c.out[0].x = c.in[0].x; return;
        case Kind::logit_max:
        case Kind::logit_sums:
        case Kind::logit_sums_dx: return logits(c);
        case Kind::token_loss:
        case Kind::token_loss_dx: return token_loss(c);
        case Kind::count:
            for (const Piece& mask : c.in)
                for (const double x : mask.x) c.out[0].x[0] += x;
            return;
        case Kind::reciprocal: c.out[0].x[0] = 1 / c.in[0].x[0]; return;
        case Kind::scale_loss: c.out[0].x[0] = c.in[0].x[0] * std::pow(c.settings.loss_scale, c.attributes().loss_scale); return;
        case Kind::mean_loss: c.out[0].x[0] = c.in[0].x[0] * c.in[1].x[0]; return;
        case Kind::sum_squares:
        case Kind::adamw:
        case Kind::sgd:
        case Kind::compress:
        case Kind::decompress:
        case Kind::retain: return flat(c);
        case Kind::load: return load(c);
        case Kind::zero: return;  // results start as zeroes
        default: throw std::runtime_error("the interpreter has no kernel for this kind");
    }
}

}  // namespace quadrille::test
