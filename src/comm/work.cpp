#include "comm/work.hpp"

namespace quadrille {

void Work::assign(const Move& move, std::span<const Ticket> after, MoveTimes* times, Lane& lane, int tag, double now) {
    move_ = &move;
    times_ = times;
    lane_ = &lane;
    tag_ = tag;
    after_.assign(after.begin(), after.end());
    record_ = {.issued = now, .entered = 0, .finished = 0, .peer_entered = 0, .sent_bytes = 0};
    carrier_ = nullptr;
    next = nullptr;
}

void Work::enter(const Channel& channel, Algorithm algorithm, int place, double now) {
    channel_ = channel;
    place_ = place;
    record_.entered = record_.peer_entered = now;
    operands_.resolve(*move_, channel.members, channel.me);
    carrier_ = &carrier(algorithm);
    carrier_->enter(operands_, channel_, record_);
}

MoveCarrier& Work::carrier(Algorithm algorithm) {
    switch (algorithm) {
        case Algorithm::automatic:  // algorithm_for has settled it
        case Algorithm::ring: break;
        case Algorithm::doubling: return doubling_;
        case Algorithm::shared: return shared_;
        case Algorithm::hierarchical: return hierarchical_;
        case Algorithm::native: return native_;
    }
    return messages_;
}

void Work::retire(double now) {
    record_.finished = now;
    if (times_ != nullptr) *times_ = record_;
    generation_.fetch_add(1, std::memory_order_release);
}

}  // namespace quadrille
