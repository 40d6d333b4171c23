#include "runtime/waits.hpp"

#include "base/error.hpp"

#include <utility>

namespace quadrille {
namespace {

bool overlap(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
    for (const ByteRange& x : a)
        for (const ByteRange& y : b)
            if (x.overlaps(y)) return true;
    return false;
}

struct Flying {
    std::int32_t op, until;
    Accesses touched;
};

}  // namespace

bool conflict(const Accesses& later, const Accesses& earlier) {
    return overlap(later.reads, earlier.writes) || overlap(later.writes, earlier.reads) || overlap(later.writes, earlier.writes);
}

Accesses accesses(const Program& program, const Op& op, const Coordinate& at) {
    Accesses a;
    if (op.kind == Kind::split) return a;
    const auto add = [](std::vector<ByteRange>& to, const ByteRange& r) { if (!r.empty()) to.push_back(r); };
    if (op.kind == Kind::join) {
        const Flat& flat = program.flats[static_cast<std::size_t>(program.attributes(op).unit)];
        const TensorId whole = program.outputs(op)[0];
        ByteRange padding = range_of(program, at, whole);
        padding.begin += flat.end * bytes_of(program.type(whole).dtype);
        add(a.writes, padding);
        return a;
    }
    for (const TensorId t : program.inputs(op)) add(a.reads, range_of(program, at, t));
    for (const TensorId t : program.outputs(op)) add(a.writes, range_of(program, at, t));
    add(a.writes, workspace_of(program, op));
    return a;
}

std::vector<Waits> derive_waits(const Program& program, const Coordinate& at) {
    const auto count = static_cast<std::int32_t>(program.ops.size());
    std::vector<Waits> out(program.ops.size() + 1);
    std::vector<Flying> flying;  // in issue order
    for (std::int32_t i = 0; i < count; ++i) {
        const Op& op = program.ops[static_cast<std::size_t>(i)];
        Waits& waits = out[static_cast<std::size_t>(i)];
        Accesses touched = accesses(program, op, at);
        waits.at_once = asynchronous(op) && op.until < 0;
        const bool behind = asynchronous(op) && !waits.at_once;
        require(!behind || op.until > i, "runtime: a move must be done before it is issued");
        std::erase_if(flying, [&](const Flying& f) {
            const bool hazard = conflict(touched, f.touched), due = f.until <= i;
            if (hazard && behind && !due) waits.after.push_back(f.op);
            const bool done = due || (hazard && !behind);
            if (done) waits.before.push_back(f.op);
            return done;
        });
        if (behind) flying.push_back({i, op.until, std::move(touched)});
    }
    for (const Flying& f : flying) out.back().before.push_back(f.op);
    return out;
}

}  // namespace quadrille
