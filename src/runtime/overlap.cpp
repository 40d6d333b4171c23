#include "runtime/overlap.hpp"

#include <algorithm>

namespace quadrille {

std::vector<Interval> united(std::vector<Interval> all) {
    std::erase_if(all, [](const Interval& x) { return !(x.end > x.begin); });
    std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    std::size_t kept = 0;
    for (const Interval& x : all) {
        if (kept > 0 && x.begin <= all[kept - 1].end) all[kept - 1].end = std::max(all[kept - 1].end, x.end);
        else all[kept++] = x;
    }
    all.resize(kept);
    return all;
}

double total(std::span<const Interval> all) {
    double seconds = 0;
    for (const Interval& x : all) seconds += x.end - x.begin;
    return seconds;
}

std::int32_t LikeOps::kind_of(const TensorType& type, TypeId id) {
    const auto [at, fresh] = type_numbers_.try_emplace(id, 0);
    if (!fresh) return at->second;
    TensorType plain = type;
    plain.covers = 0;
    const auto known = std::find(types_.begin(), types_.end(), plain);
    at->second = static_cast<std::int32_t>(known - types_.begin());
    if (known == types_.end()) types_.push_back(plain);
    return at->second;
}

std::int32_t LikeOps::number(const Program& program, const Op& op) {
    std::vector<std::int32_t> key = {static_cast<std::int32_t>(op.kind), op.adds, op.attributes, static_cast<std::int32_t>(op.inputs)};
    const auto add = [&](TensorId t) { key.push_back(kind_of(program.type(t), program.tensor(t).type)); };
    for (const TensorId t : program.inputs(op)) add(t);
    for (const TensorId t : program.outputs(op)) add(t);
    return numbers_.try_emplace(std::move(key), static_cast<std::int32_t>(numbers_.size())).first->second;
}

Beside beside(std::span<const Stretch> ran, std::span<const Interval> moves, std::size_t likes) {
    struct Alone { double seconds = 0, ops = 0; };
    std::vector<Alone> alone(likes);
    std::vector<double> covered(ran.size());  // of each op's time, by moves
    auto first = moves.begin();               // that may still reach into what comes
    for (std::size_t i = 0; i < ran.size(); ++i) {
        const Interval& op = ran[i].time;
        while (first != moves.end() && first->end <= op.begin) ++first;
        for (auto m = first; m != moves.end() && m->begin < op.end; ++m) covered[i] += std::min(m->end, op.end) - std::max(m->begin, op.begin);
        if (covered[i] > 0) continue;
        Alone& like = alone[static_cast<std::size_t>(ran[i].like)];
        like.seconds += op.end - op.begin;
        ++like.ops;
    }
    Beside sum;
    for (std::size_t i = 0; i < ran.size(); ++i) {
        const Alone& like = alone[static_cast<std::size_t>(ran[i].like)];
        if (covered[i] <= 0 || like.ops == 0) continue;
        sum.seconds += covered[i];
        // Of the op's work, what was not done outside of the moves' time.
        sum.alone += like.seconds / like.ops - (ran[i].time.end - ran[i].time.begin - covered[i]);
    }
    return sum;
}

}  // namespace quadrille
