#include "compile/schedule.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace quadrille {
namespace {

struct Unit { int chunk, microbatch; };

// The order of forwards (or, reversed in chunks, of backwards) on coordinate r: rounds of pp microbatches, chunk after chunk.
std::vector<Unit> rounds(int r, int pp, int virtual_stages, int microbatches, bool backward) {
    std::vector<Unit> out;
    for (int k = 0; k < microbatches * virtual_stages; ++k) {
        if (virtual_stages == 1) { out.push_back({r, k}); continue; }
        const int turn = k / pp % virtual_stages;
        out.push_back({r + pp * (backward ? virtual_stages - 1 - turn : turn), k / (pp * virtual_stages) * pp + k % pp});
    }
    return out;
}

Order gpipe(int r, int pp, int virtual_stages, int microbatches) {
    Order out;
    for (int i = 0; i < virtual_stages; ++i)
        for (int m = 0; m < microbatches; ++m) out.push_back({Phase::forward, r + pp * i, m});
    // One coordinate has both ends of the model, and with them a tied table, which all schedules sum in this order.
    if (pp == 1) {
        for (const Unit& b : rounds(r, pp, virtual_stages, microbatches, true)) out.push_back({Phase::backward, b.chunk, b.microbatch});
        return out;
    }
    for (int i = virtual_stages; i-- > 0;)
        for (int m = 0; m < microbatches; ++m) out.push_back({Phase::backward, r + pp * i, m});
    return out;
}

// Warm up with forwards, then one forward and one backward in turn, then drain.
Order one_f_one_b(int r, int pp, int virtual_stages, int microbatches) {
    const auto f = rounds(r, pp, virtual_stages, microbatches, false), b = rounds(r, pp, virtual_stages, microbatches, true);
    const std::size_t n = f.size();
    const int ahead = virtual_stages > 1 ? (pp - r - 1) * 2 + (virtual_stages - 1) * pp : pp - r - 1;
    const std::size_t warm = std::min(n, static_cast<std::size_t>(ahead));
    Order out;
    for (std::size_t i = 0; i < warm; ++i) out.push_back({Phase::forward, f[i].chunk, f[i].microbatch});
    for (std::size_t i = 0; i < n; ++i) {
        if (warm + i < n) out.push_back({Phase::forward, f[warm + i].chunk, f[warm + i].microbatch});
        out.push_back({Phase::backward, b[i].chunk, b[i].microbatch});
    }
    return out;
}

// 1F1B with the backward split; the weight gradients of coordinate r lag r microbatches, and what is left fills the drain.
Order zero_bubble(int r, int pp, int microbatches) {
    const int warm = std::min(microbatches, pp - r - 1);
    Order out;
    for (int m = 0; m < warm; ++m) out.push_back({Phase::forward, r, m});
    int done = 0;
    for (int m = 0; m < microbatches; ++m) {
        if (warm + m < microbatches) out.push_back({Phase::forward, r, warm + m});
        out.push_back({Phase::backward_input, r, m});
        if (m - done >= r) out.push_back({Phase::backward_weight, r, done++});
    }
    while (done < microbatches) out.push_back({Phase::backward_weight, r, done++});
    return out;
}

}  // namespace

std::vector<Order> schedule(Schedule kind, int pp, int virtual_stages, int microbatches) {
    require(kind == Schedule::gpipe || kind == Schedule::interleaved || virtual_stages == 1,
            "schedule: only gpipe and interleaved have virtual stages");
    require(kind != Schedule::interleaved || microbatches % pp == 0, "schedule: interleaved needs microbatches to be a multiple of pp");
    std::vector<Order> orders;
    for (int r = 0; r < pp; ++r) {
        switch (kind) {
            case Schedule::gpipe: orders.push_back(gpipe(r, pp, virtual_stages, microbatches)); break;
            case Schedule::one_f_one_b:
            case Schedule::interleaved: orders.push_back(one_f_one_b(r, pp, virtual_stages, microbatches)); break;
            case Schedule::zero_bubble: orders.push_back(zero_bubble(r, pp, microbatches)); break;
        }
    }
    return orders;
}

std::vector<Order> forward_only(int pp, int virtual_stages, int microbatches) {
    std::vector<Order> orders(static_cast<std::size_t>(pp));
    for (int r = 0; r < pp; ++r)
        for (int m = 0; m < microbatches; ++m)
            for (int i = 0; i < virtual_stages; ++i) orders[static_cast<std::size_t>(r)].push_back({Phase::forward, r + pp * i, m});
    return orders;
}

std::string text(const Order& order) {
    std::string s;
    for (const Action& a : order) s += fmt::format("{}{}{}{}", s.empty() ? "" : " ", a.chunk, "FBIW"[static_cast<int>(a.phase)], a.microbatch);
    return s;
}

}  // namespace quadrille
