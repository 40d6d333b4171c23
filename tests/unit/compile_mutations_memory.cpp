// The layout: memory given twice, freed early, views that point elsewhere.
#include "compile_mutations.hpp"

#include <algorithm>

namespace quadrille::test {
namespace {

bool has_workspace(const Program&, const Op& op) { return op.workspace >= 0; }

std::vector<std::size_t> buffers_where(const Program& p, const std::function<bool(const Buffer&)>& test) {
    std::vector<std::size_t> out;
    for (std::size_t b = 0; b < p.buffers.size(); ++b)
        if (p.buffers[b].offset >= 0 && test(p.buffers[b])) out.push_back(b);
    return out;
}

// Two buffers that live at once get the same memory.
bool overlapped(const Site& s) {
    Buffer& b = s.buffer(s.out()[0]);
    const auto i = static_cast<std::int32_t>(s.i);
    const auto others = buffers_where(
        s.p, [&](const Buffer& c) { return &c != &b && c.first < i && i < c.last && b.last > i && c.offset != b.offset; });
    if (others.empty() || b.persistent) return false;
    b.offset = s.p.buffers[s.random.one_of(others)].offset;
    return true;
}

// ... or lie only partly on each other.
bool overlapped_in_part(const Site& s) {
    Buffer& b = s.buffer(s.out()[0]);
    const auto i = static_cast<std::int32_t>(s.i);
    const auto others =
        buffers_where(s.p, [&](const Buffer& c) { return &c != &b && c.first < i && i < c.last && b.last > i && c.bytes > 64; });
    if (others.empty() || b.persistent) return false;
    const Buffer& c = s.p.buffers[s.random.one_of(others)];
    if (c.offset + c.bytes - 4 == b.offset) return false;
    b.offset = c.offset + c.bytes - 4;
    return true;
}

// The layout believes that the result is dead one op too soon: the next buffer born takes its place.
bool freed_early(const Site& s) {
    const Buffer& b = s.buffer(s.out()[0]);
    if (b.persistent || b.last <= static_cast<std::int32_t>(s.i)) return false;
    const auto born =
        buffers_where(s.p, [&](const Buffer& c) { return &c != &b && !c.persistent && c.first == b.last && c.bytes > 0; });
    if (born.empty()) return false;
    s.p.buffers[s.random.one_of(born)].offset = b.offset;
    return true;
}

bool over_the_state(const Site& s) {
    Buffer& b = s.buffer(s.out()[0]);
    const auto state = buffers_where(s.p, [](const Buffer& c) { return c.persistent; });
    if (b.persistent || state.empty()) return false;
    b.offset = s.p.buffers[s.random.one_of(state)].offset;
    return true;
}

bool workspace_over_an_operand(const Site& s) {
    std::vector<TensorId> operands = s.in();
    for (const TensorId t : s.out()) operands.push_back(t);
    s.p.buffers[static_cast<std::size_t>(s.op().workspace)].offset = s.buffer(s.random.one_of(operands)).offset;
    return true;
}

bool workspace_over_a_live_buffer(const Site& s) {
    const auto i = static_cast<std::int32_t>(s.i);
    const auto others = buffers_where(s.p, [&](const Buffer& c) { return c.first < i && i < c.last; });
    if (others.empty()) return false;
    s.p.buffers[static_cast<std::size_t>(s.op().workspace)].offset = s.p.buffers[s.random.one_of(others)].offset;
    return true;
}

bool view_moved(const Site& s) {
    const auto views = s.op().kind == Kind::split ? s.out() : s.in();
    Tensor& t = s.tensor(s.random.one_of(views));
    t.offset += t.offset > 0 && s.random.below(2) ? -1 : 1;
    return true;
}

// Two views of one unit change places.
bool views_exchanged(const Site& s) {
    const auto views = s.op().kind == Kind::split ? s.out() : s.in();
    for (std::size_t a = 0; a < views.size(); ++a)
        for (std::size_t b = a + 1; b < views.size(); ++b)
            if (s.tensor(views[a]).type == s.tensor(views[b]).type && s.random.below(2)) {
                std::swap(s.tensor(views[a]).offset, s.tensor(views[b]).offset);
                return true;
            }
    return false;
}

// Every rank takes the first rank's slice of a buffer.
bool wrong_slice(const Site& s) {
    Tensor& t = s.tensor(s.out()[0]);
    if (t.slice_axes.empty()) return false;
    t.slice_axes = {};
    return true;
}

bool result_elsewhere(const Site& s) {
    if (!s.op().adds && !s.attributes().carries && s.op().kind != Kind::adamw && s.op().kind != Kind::sgd) return false;
    Tensor& t = s.tensor(s.random.one_of(s.out()));
    Buffer b = s.p.buffers[static_cast<std::size_t>(t.buffer)];
    const auto others = buffers_where(s.p, [&](const Buffer& c) {
        return !c.persistent && c.bytes >= b.bytes &&
               (c.last < static_cast<std::int32_t>(s.i) || c.first > static_cast<std::int32_t>(s.i));
    });
    if (others.empty()) return false;
    b.persistent = false;
    b.offset = s.p.buffers[s.random.one_of(others)].offset;
    t.buffer = static_cast<BufferId>(s.p.buffers.size());
    s.p.buffers.push_back(b);
    return true;
}

bool beyond_the_arena(const Site& s) {
    Buffer& b = s.buffer(s.out()[0]);
    if (b.persistent) return false;
    b.offset = s.p.peaks[static_cast<std::size_t>(b.tier)].arena - 4;
    return true;
}

bool without_a_place(const Site& s) {
    Buffer& b = s.buffer(s.out()[0]);
    if (b.persistent) return false;
    b.offset = -1;
    return true;
}

// What recompute dropped is read as if it were still there.
bool dropped_one_read(const Site& s) {
    const TensorId again = s.out()[0];
    const std::string name = s.p.tables->name(s.tensor(again).name);
    for (std::size_t t = 0; t < s.p.tensors.size(); ++t) {
        const Tensor& x = s.p.tensors[t];
        if (x.microbatch != s.tensor(again).microbatch || s.p.tables->name(x.name) + "~" != name) continue;
        rewire(s.p, s.i, again, static_cast<TensorId>(t));
        return true;
    }
    return false;
}

bool is_clone(const Program&, const Op& op) { return op.clone; }

}  // namespace

std::vector<MutationKind> memory_mutations() {
    const Applies is_view = of_kind({Kind::split, Kind::join});
    return {
        {"live buffers overlapped", makes_something, overlapped},
        {"live buffers overlapped in part", makes_something, overlapped_in_part},
        {"freed early", makes_something, freed_early},
        {"temporary over the state", makes_something, over_the_state},
        {"workspace over an operand", has_workspace, workspace_over_an_operand},
        {"workspace over a live buffer", has_workspace, workspace_over_a_live_buffer},
        {"view moved by an element", is_view, view_moved},
        {"views exchanged", is_view, views_exchanged},
        {"another rank's slice", of_kind({Kind::redistribute}), wrong_slice},
        {"result beside its running sum", makes_something, result_elsewhere},
        {"beyond the arena", makes_something, beyond_the_arena},
        {"without a place", makes_something, without_a_place},
        {"dropped activation read", is_clone, dropped_one_read},
    };
}

}  // namespace quadrille::test
