#include "ir/program.hpp"

#include "base/error.hpp"
#include "ir/table.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace quadrille {

namespace {

struct StateNames { char letter; std::string_view name; };
constexpr std::array<StateNames, 8> state_names = {
    {{' ', "none"}, {'W', "weight"}, {'P', "master"}, {'M', "m"}, {'V', "v"}, {'R', "residual"}, {'S', "stale"}, {'G', "gradient"}}};

}  // namespace

std::string_view name_of(StateKind kind) { return state_names[static_cast<std::size_t>(kind)].name; }

std::string Program::name(TensorId t) const {
    const Tensor& x = tensor(t);
    return x.microbatch < 0 ? tables->name(x.name) : fmt::format("{}@{}", tables->name(x.name), x.microbatch);
}

bool Program::tells(TensorId t) const {
    return t == loss || t == norm || t == tokens || std::find(residual_squares.begin(), residual_squares.end(), t) != residual_squares.end();
}

void Program::tell_instead(TensorId old, TensorId now) {
    for (TensorId* scalar : {&loss, &norm, &tokens})
        if (*scalar == old) *scalar = now;
    std::replace(residual_squares.begin(), residual_squares.end(), old, now);
}

std::vector<TensorId> Program::initial_state() const {
    std::vector<bool> made(tensors.size(), false);
    for (const Op& op : ops)
        for (const TensorId t : outputs(op)) made[static_cast<std::size_t>(t)] = true;
    std::vector<TensorId> out;
    for (std::size_t t = 0; t < tensors.size(); ++t)
        if (!made[t] && buffer(static_cast<TensorId>(t)).persistent) out.push_back(static_cast<TensorId>(t));
    return out;
}

TensorId Program::initial_state(StateKind kind, std::int32_t unit) const {
    for (const TensorId t : initial_state())
        if (buffer(t).state == kind && buffer(t).unit == unit) return t;
    return -1;
}

std::optional<Program::At> Program::find(int parameter) const {
    for (std::size_t u = 0; u < flats.size(); ++u)
        for (std::size_t s = 0; s < flats[u].segments.size(); ++s)
            if (flats[u].segments[s].parameter == parameter) return At{u, s};
    return {};
}

BufferId Program::add_state(StateKind kind, std::int32_t unit, const TensorType& t) {
    require(kind != StateKind::none, "ir: a buffer of state is of some kind");
    const std::string name = fmt::format("{}.{}", state_names[static_cast<std::size_t>(kind)].letter, flats[static_cast<std::size_t>(unit)].unit);
    const BufferId b = add_buffer(name, -1, t, kind != StateKind::gradient);
    buffers.back().state = kind;
    buffers.back().unit = unit;
    return b;
}

BufferId Program::add_buffer(std::string_view name, std::int32_t microbatch, const TensorType& t, bool persistent) {
    Buffer b;
    b.name = tables->intern(name);
    b.microbatch = microbatch;
    b.persistent = persistent;
    b.tier = t.tier;
    b.book = t.book;
    buffers.push_back(b);
    return static_cast<BufferId>(buffers.size() - 1);
}

TensorId Program::declare(std::string_view name, const TensorType& t, std::int32_t microbatch, BufferId buffer, std::int64_t offset, AxisSet slice) {
    if (buffer < 0) buffer = add_buffer(name, microbatch, t);
    tensors.push_back({tables->intern(t), buffer, offset, grid().real(slice), tables->intern(name), microbatch});
    return static_cast<TensorId>(tensors.size() - 1);
}

std::vector<TensorId> Program::add(Kind kind, std::vector<TensorId> inputs, const Attributes& a, Where where, const Options& o) {
    Op op;
    op.kind = kind;
    op.part = where.part;
    op.queue = kind == Kind::redistribute ? Queue::collective : kind == Kind::send || kind == Kind::recv ? Queue::stage : Queue::compute;
    if (kind == Kind::move) op.queue = copy_queue(type(inputs[0]).tier, a.tier);
    op.writes_sum = o.writes_sum;
    op.adds = o.adds;
    op.clone = where.clone;
    op.use = static_cast<std::int8_t>(o.use);
    op.microbatch = where.microbatch;
    op.action = where.action;
    op.unit = where.unit;
    op.attributes = tables->intern(a);
    std::vector<TypeId> types;
    for (const TensorId t : inputs) types.push_back(tensor(t).type);
    // An op that adds has as many earlier versions among its inputs as outputs; before inference only `storage` says how many.
    op.outputs = static_cast<std::uint32_t>(o.storage.size());
    std::vector<TypeId> results;
    try {
        results = tables->infer(op, types);
    } catch (const TypingError& e) {
        throw TypingError(fmt::format("{} in {}: {}", row(kind).name, tables->name(where.unit), e.what()));
    }
    if (kind == Kind::redistribute && !moves_data(change(type(inputs[0]), tables->type(a.types[0]).place).pair)) op.queue = Queue::compute;
    std::vector<TensorId> outputs;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const TensorType t = tables->type(results[i]).in(o.book);
        const auto numbered = [&] {
            return fmt::format("{}/{}.{}{}", tables->name(where.unit), row(kind).name, numbered_++, where.clone ? "~" : "");
        };
        const std::string name = o.names.empty() ? numbered() : o.names[i];
        if (o.storage.empty() || o.storage[i] < 0) { outputs.push_back(declare(name, t, where.microbatch)); continue; }
        const Tensor place = tensor(o.storage[i]);
        outputs.push_back(declare(name, t, where.microbatch, place.buffer, place.offset, place.slice_axes));
    }
    append(op, inputs, outputs);
    return outputs;
}

TensorId Program::to(TensorId x, const Placement& to, Where where, const Options& o) {
    const TensorType& t = type(x);
    if (t.place == to) return x;
    Attributes a;
    a.types = {tables->intern(TensorType(t).placed(to))};
    return add(Kind::redistribute, {x}, a, where, o)[0];
}

TensorId Program::to_tier(TensorId x, Tier to, Where where, const Options& o) {
    const Tier from = type(x).tier;
    if (from == to) return x;
    if (from != Tier::host && to != Tier::host) {
        Options on_the_way;
        on_the_way.book = Book::buffers;
        on_the_way.names = {name(x)};
        x = to_tier(x, Tier::host, where, on_the_way);
    }
    Attributes a;
    a.tier = to;
    return add(Kind::move, {x}, a, where, o)[0];
}

void Program::append(Op op, std::span<const TensorId> in, std::span<const TensorId> out) {
    set_operands(op, in, out);
    ops.push_back(op);
}

void Program::set_operands(Op& op, std::span<const TensorId> in, std::span<const TensorId> out) {
    require(operands.size() + in.size() + out.size() <= std::numeric_limits<std::uint32_t>::max(), "a program's operands are counted in 32 bits");
    op.first = static_cast<std::uint32_t>(operands.size());
    op.inputs = static_cast<std::uint32_t>(in.size());
    op.outputs = static_cast<std::uint32_t>(out.size());
    operands.insert(operands.end(), in.begin(), in.end());
    operands.insert(operands.end(), out.begin(), out.end());
}

}  // namespace quadrille
