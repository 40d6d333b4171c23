// Attention, forward and backward, one query at a time: causal by global position, within documents, with dropout by global
// element, merged with what earlier turns of a ring have seen.
#include "base/random.hpp"
#include "compile_interpreter_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace quadrille::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// One query's view of its keys.
class Attention {
  public:
    explicit Attention(KernelCall& c)
        : c_(c), a_(c.attributes()), q_(c.in[0]), k_(c.in[1]), v_(c.in[2]), d_(static_cast<std::size_t>(q_.shape[3])) {}

    void run() {
        const std::int64_t group = q_.type->shape[2] / k_.type->shape[2];
        for (std::int64_t b = 0; b < q_.shape[0]; ++b)
            for (std::int64_t s = 0; s < q_.shape[1]; ++s)
                for (std::int64_t n = 0; n < q_.shape[2]; ++n) {
                    const auto head =
                        std::find(k_.index[2].begin(), k_.index[2].end(), q_.index[2][static_cast<std::size_t>(n)] / group);
                    if (head == k_.index[2].end())
                        throw std::runtime_error("attention: a query head's key-value head is on another rank");
                    b_ = b, s_ = s, n_ = n, g_ = head - k_.index[2].begin();
                    row_ = static_cast<std::size_t>((b * q_.shape[1] + s) * q_.shape[2] + n);
                    find_scores();
                    c_.op.kind == Kind::attention ? forward() : backward();
                }
    }

  private:
    std::size_t key_row(std::int64_t t) const { return static_cast<std::size_t>((b_ * k_.shape[1] + t) * k_.shape[2] + g_) * d_; }

    void find_scores() {
        score_.assign(static_cast<std::size_t>(k_.shape[1]), -infinity);
        keep_.assign(score_.size(), 1.0);
        const std::int64_t query = q_.index[1][static_cast<std::size_t>(s_)];
        const std::size_t fixed = c_.op.kind == Kind::attention ? 3 : 6;
        const double start = a_.documents ? c_.in[fixed].x[static_cast<std::size_t>(b_ * q_.shape[1] + s_)] : 0.0;
        for (std::size_t t = 0; t < score_.size(); ++t) {
            const std::int64_t key = k_.index[1][t];
            if (key > query || static_cast<double>(key) < start) continue;
            double dot = 0;
            for (std::size_t i = 0; i < d_; ++i) dot += q_.x[row_ * d_ + i] * k_.x[key_row(static_cast<std::int64_t>(t)) + i];
            score_[t] = dot / std::sqrt(static_cast<double>(d_));
            if (a_.rate == 0) continue;
            const std::int64_t seq = q_.type->shape[1],
                               row = (global_sample(c_, q_, b_) * q_.type->shape[2] + q_.index[2][static_cast<std::size_t>(n_)]) *
                                         seq +
                                     query;
            keep_[t] = keeps(random_key(c_.settings.seed, c_.step, a_.stream), static_cast<std::uint64_t>(row * seq + key),
                             keep_threshold(a_.rate))
                           ? 1 / (1 - a_.rate)
                           : 0.0;
        }
    }

    void forward() {
        const double old = a_.carries ? c_.in.back().x[row_] : -infinity;
        const double most = std::max(old, *std::max_element(score_.begin(), score_.end()));
        double sum = std::isinf(most) ? 0.0 : std::exp(old - most);
        std::vector<double> o(d_, 0.0);
        for (std::size_t i = 0; a_.carries && i < d_; ++i)
            o[i] =
                std::isinf(old) ? 0.0 * c_.in[c_.in.size() - 2].x[row_ * d_ + i] : sum * c_.in[c_.in.size() - 2].x[row_ * d_ + i];
        for (std::size_t t = 0; t < score_.size(); ++t) {
            if (std::isinf(score_[t])) continue;
            const double p = std::exp(score_[t] - most);
            sum += p;
            for (std::size_t i = 0; i < d_; ++i) o[i] += p * keep_[t] * v_.x[key_row(static_cast<std::int64_t>(t)) + i];
        }
        for (std::size_t i = 0; i < d_; ++i) c_.out[0].x[row_ * d_ + i] = sum > 0 ? o[i] / sum : o[i];
        c_.out[1].x[row_] = sum > 0 ? most + std::log(sum) : sum == 0 ? -infinity : sum;
    }

    void backward() {
        const std::vector<double>&o = c_.in[3].x, &lse = c_.in[4].x, &d_o = c_.in[5].x;
        double delta = 0;
        for (std::size_t i = 0; i < d_; ++i) delta += o[row_ * d_ + i] * d_o[row_ * d_ + i];
        for (std::size_t t = 0; t < score_.size(); ++t) {
            if (std::isinf(score_[t])) continue;
            const std::size_t key = key_row(static_cast<std::int64_t>(t));
            const double p = std::exp(score_[t] - lse[row_]);
            double dp = 0;
            for (std::size_t i = 0; i < d_; ++i) dp += d_o[row_ * d_ + i] * v_.x[key + i];
            const double ds = p * (dp * keep_[t] - delta) / std::sqrt(static_cast<double>(d_));
            for (std::size_t i = 0; i < d_; ++i) {
                c_.out[0].x[row_ * d_ + i] += ds * k_.x[key + i];
                c_.out[1].x[key + i] += ds * q_.x[row_ * d_ + i];
                c_.out[2].x[key + i] += p * keep_[t] * d_o[row_ * d_ + i];
            }
        }
    }

    KernelCall& c_;
    const Attributes& a_;
    const Piece &q_, &k_, &v_;
    const std::size_t d_;
    std::int64_t b_ = 0, s_ = 0, n_ = 0, g_ = 0;
    std::size_t row_ = 0;
    std::vector<double> score_, keep_;
};

}  // namespace

void attention(KernelCall& c) {
    Attention(c).run();
    if (c.op.kind == Kind::attention || !c.attributes().carries) return;
    for (std::size_t k = 0; k < 3; ++k)
        for (std::size_t i = 0; i < c.out[k].x.size(); ++i) c.out[k].x[i] += c.in[c.in.size() - 3 + k].x[i];
}

}  // namespace quadrille::test
