#include "comm/move.hpp"

namespace quadrille {

std::string_view name_of(MoveKind kind) {
    switch (kind) {
        case MoveKind::all_reduce: return "all_reduce";
        case MoveKind::reduce_scatter: return "reduce_scatter";
        case MoveKind::all_gather: return "all_gather";
        case MoveKind::all_to_all: return "all_to_all";
        case MoveKind::ring_shift: return "ring_shift";
        case MoveKind::send: return "send";
        case MoveKind::receive: return "receive";
    }
    return "move";
}

}  // namespace quadrille
