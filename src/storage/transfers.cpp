#include "storage/transfers.hpp"

#include "base/error.hpp"
#include "storage/aligned_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace quadrille {
namespace {

constexpr int most_vain_tries = 1000;  // of a block, one after the other, that move nothing

const char* verb(Direction d) { return d == Direction::read ? "reading" : "writing"; }

}  // namespace

Transfers::Transfers(BlockEngine& engine, FileShape file, std::span<std::byte> bounce) : engine_(engine), file_(std::move(file)), bounce_(bounce) {
    require(file_.block_bytes > 0 && file_.block_bytes % file_.length_alignment == 0, "storage: a block is whole units of the file's alignment");
    require(file_.bytes % file_.length_alignment == 0, "storage: a file is whole units of its alignment");
    const std::int64_t blocks = static_cast<std::int64_t>(bounce.size()) / file_.block_bytes;
    const int slots = static_cast<int>(std::min<std::int64_t>(blocks, engine.depth()));
    require(slots > 0, "storage: bounce memory for one block at least");
    slots_.resize(static_cast<std::size_t>(slots));
    for (int s = slots - 1; s >= 0; --s) free_slots_.push_back(s);
    starting_.reserve(slots_.size());
    ends_.reserve(slots_.size());
}

Transfers::~Transfers() {
    try {
        drain();
    } catch (const Error&) {  // the engine gives no answers: nothing is left to wait for
    }
}

TransferTicket Transfers::submit(Direction direction, std::int64_t offset, std::byte* memory, std::int64_t bytes, MovedBytes moved) {
    check();
    require(bytes >= 0 && offset >= 0 && offset + bytes <= file_.bytes, "storage: a request within its file");
    require(offset % file_.length_alignment == 0, "storage: a request begins at a multiple of the file's alignment");
    const TransferTicket ticket = first_ + static_cast<TransferTicket>(requests_.size());
    requests_.push_back({direction, offset, memory, bytes, std::move(moved)});
    cut_blocks();
    start();
    return ticket;
}

bool Transfers::poll() {
    check();
    if (in_flight_ > 0) advance(false);
    return in_flight_ > 0;
}

bool Transfers::done(TransferTicket ticket) const {
    check();
    require(ticket >= 0 && ticket < first_ + static_cast<TransferTicket>(requests_.size()), "storage: the ticket of a request");
    if (ticket < first_) return true;
    const Request& r = requests_[static_cast<std::size_t>(ticket - first_)];
    return r.ended == r.bytes;
}

void Transfers::wait(TransferTicket ticket) {
    while (!done(ticket)) advance(true);
}

void Transfers::check() const {
    if (!failure_.empty()) throw Error(Exit::io_failed, failure_);
}

// One round: what has ended makes room for what comes next.
void Transfers::advance(bool wait) {
    collect(wait);
    for (const BlockEnd& end : ends_) take_end(end);
    if (!failure_.empty()) {
        starting_.clear();
        drain();  // whoever catches the error may free the memory that blocks are on their way to
        check();
    }
    while (!requests_.empty() && requests_.front().ended == requests_.front().bytes) {
        requests_.pop_front();
        ++first_;
    }
    cut_blocks();
    start();
}

void Transfers::take_end(const BlockEnd& end) {
    Slot& slot = slots_[static_cast<std::size_t>(end.slot)];
    if (end.result == -EINTR || end.result == -EAGAIN) {
        pause_ = pause_ || end.result == -EAGAIN;
        retry(slot, 0, std::strerror(static_cast<int>(-end.result)));
    } else if (end.result < 0) {
        fail(slot, std::strerror(static_cast<int>(-end.result)));
    } else if (end.result == 0) {
        fail(slot, slot.block.direction == Direction::read ? "short read: the file ends there" : "short write: the system writes nothing");
    } else if (end.result < slot.block.bytes) {  // goes on at the last aligned place that it reached
        retry(slot, end.result / file_.length_alignment * file_.length_alignment, fmt::format("only {} bytes at once", end.result));
    } else {
        finish(slot, end.result);
    }
}

void Transfers::retry(Slot& slot, std::int64_t moved, const std::string& problem) {
    slot.vain_tries = moved > 0 ? 0 : slot.vain_tries + 1;
    if (slot.vain_tries > most_vain_tries) return fail(slot, fmt::format("{}, {} times", problem, slot.vain_tries));
    slot.moved += moved;
    slot.block.offset += moved;
    slot.block.memory += moved;
    slot.block.bytes -= moved;
    starting_.push_back(slot.block);
}

void Transfers::finish(Slot& slot, std::int64_t moved) {
    const auto index = static_cast<std::size_t>(slot.block.slot);
    const std::byte* bounced = bounce_.data() + static_cast<std::int64_t>(index) * file_.block_bytes;
    const bool went_round = slot.block.memory >= bounced && slot.block.memory < bounced + file_.block_bytes;
    if (went_round && slot.block.direction == Direction::read) std::memcpy(slot.memory, bounced, static_cast<std::size_t>(slot.bytes));
    Request& r = requests_[static_cast<std::size_t>(slot.ticket - first_)];
    r.ended += slot.bytes;
    if (r.moved) *r.moved += std::min(slot.moved + moved, slot.bytes);  // less the padding
    free_slots_.push_back(slot.block.slot);
}

void Transfers::fail(const Slot& slot, const std::string& problem) {
    if (!failure_.empty()) return;  // the first is the one to tell
    failure_ = fmt::format("{}: {} {} bytes at byte {} of {} failed: {}", file_.name, verb(slot.block.direction), slot.block.bytes,
                           slot.block.offset, file_.bytes, problem);
}

void Transfers::cut_blocks() {
    cutting_ = std::max(cutting_, first_);
    const TransferTicket end = first_ + static_cast<TransferTicket>(requests_.size());
    while (cutting_ < end && !free_slots_.empty()) {
        Request& r = requests_[static_cast<std::size_t>(cutting_ - first_)];
        if (r.cut == r.bytes)
            ++cutting_;
        else
            cut_block(r, cutting_);
    }
}

void Transfers::cut_block(Request& r, TransferTicket ticket) {
    const int s = free_slots_.back();
    free_slots_.pop_back();
    Slot& slot = slots_[static_cast<std::size_t>(s)];
    const std::int64_t bytes = std::min(file_.block_bytes, r.bytes - r.cut), padded = aligned_up(bytes, file_.length_alignment);
    slot = {{r.direction, r.offset + r.cut, r.memory + r.cut, padded, s}, ticket, r.memory + r.cut, bytes, 0, 0};
    const bool fits = padded == bytes && reinterpret_cast<std::uintptr_t>(slot.memory) % static_cast<std::uintptr_t>(file_.memory_alignment) == 0;
    if (!fits) {
        slot.block.memory = bounce_.data() + s * file_.block_bytes;
        if (r.direction == Direction::write) {
            std::memcpy(slot.block.memory, slot.memory, static_cast<std::size_t>(bytes));
            std::memset(slot.block.memory + bytes, 0, static_cast<std::size_t>(padded - bytes));
        }
    }
    r.cut += bytes;
    starting_.push_back(slot.block);
}

void Transfers::start() {
    if (starting_.empty()) return;
    if (pause_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pause_ = false;
    in_flight_ += static_cast<std::int64_t>(starting_.size());
    engine_.start(starting_);
    starting_.clear();
}

void Transfers::drain() {
    while (in_flight_ > 0) collect(true);
}

void Transfers::collect(bool wait) {
    ends_.clear();
    try {
        engine_.collect(wait, ends_);
    } catch (const Error& e) {
        if (failure_.empty())
            failure_ = fmt::format("{}: blocks lost in flight: {}, of up to {} bytes each: {}", file_.name, in_flight_,
                                   file_.block_bytes, e.what());
        throw Error(Exit::io_failed, failure_);
    }
    in_flight_ -= static_cast<std::int64_t>(ends_.size());
}

}  // namespace quadrille
