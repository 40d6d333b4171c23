#include "ir/print.hpp"

#include "ir/table.hpp"

namespace quadrille {
namespace {

std::string movement(const TensorType& from, const Placement& to) {
    try {
        const Change c = change(from, to);
        std::string axes;
        for (const Axis x : c.axes.list()) axes += (axes.empty() ? "" : "+") + std::string(name_of(x));
        return fmt::format("{} over {}", name_of(c.pair), axes);
    } catch (const TypingError&) {
        return "no move to " + text(to, from.dims);  // an unsound program is printed too
    }
}

std::string details(const Program& p, const Op& op) {
    const Attributes& a = p.attributes(op);
    std::string s;
    const auto say = [&s](std::string part) { s += (s.empty() ? "  [" : ", ") + std::move(part); };
    if (!a.signature.empty()) say(a.signature);
    if (op.kind == Kind::redistribute) say(movement(p.type(p.inputs(op)[0]), p.destination(op)));
    if (op.kind == Kind::move) say(fmt::format("to {} memory", name_of(a.tier)));
    if (op.kind == Kind::send || op.kind == Kind::recv)
        say(fmt::format("{} pp {}, {} of chunk {}", op.kind == Kind::send ? "to" : "from", a.peer, a.gradient ? "gradient" : "result", a.chunk));
    if (op.kind == Kind::scale) say(fmt::format("times {}", a.factor));
    if (a.rate > 0) say(fmt::format("rate {} stream {}", a.rate, a.stream));
    if (a.ring) say("ring");
    if (a.clip > 0) say(fmt::format("clip {}", a.clip));
    if (a.loss_scale != 0) say(fmt::format("loss scale^{}", a.loss_scale));
    if (a.packing.method != PackingMethod::none) say(fmt::format("{} over {}", name_of(a.packing.method), a.over.text()));
    if (a.stale) say("stale");
    if (op.adds) say("adds");
    if (op.until >= 0) say(fmt::format("until {}", op.until));
    return s.empty() ? s : s + "]";
}

}  // namespace

std::string text(const Program& p, std::size_t i) {
    const Op& op = p.ops[i];
    std::string s = fmt::format("{:5} {}{} {}  {}{}(", i, "FBWS"[static_cast<int>(op.part)], op.microbatch < 0 ? "" : std::to_string(op.microbatch),
                                p.tables->name(op.unit), row(op.kind).name, op.clone ? "~" : "");
    const char* comma = "";
    for (const TensorId t : p.inputs(op)) { s += comma + p.name(t); comma = ", "; }
    s += ")";
    comma = " -> ";
    for (const TensorId t : p.outputs(op)) { s += fmt::format("{}{}: {}", comma, p.name(t), text(p.type(t))); comma = ", "; }
    return s + details(p, op);
}

std::string text(const Program& p) {
    std::string s;
    for (std::size_t i = 0; i < p.ops.size(); ++i) s += text(p, i) + "\n";
    return s;
}

}  // namespace quadrille
