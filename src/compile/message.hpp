// What tells the messages between pp coordinates apart: both ends name the same.
#pragma once
#include "ir/program.hpp"

#include <compare>

namespace quadrille {

struct Message {
    int from = 0, to = 0;      // pp coordinates
    bool gradient = false;     // backward in the pipeline
    int chunk = 0;             // whose result, or gradient, travels
    int microbatch = 0;
    friend auto operator<=>(const Message&, const Message&) = default;
};

// Of a send or a recv.
inline Message message_of(const Program& p, const Op& op) {
    const Attributes& a = p.attributes(op);
    const bool sends = op.kind == Kind::send;
    return {sends ? p.coordinate : a.peer, sends ? a.peer : p.coordinate, a.gradient, a.chunk, op.microbatch};
}

}  // namespace quadrille
