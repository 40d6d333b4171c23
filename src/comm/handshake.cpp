#include "comm/handshake.hpp"

#include "comm/world.hpp"

namespace quadrille {
namespace {

constexpr int promise_tag = 1, go_tag = 2;

}  // namespace

bool Promise::agrees_with(const Promise& o) const {
    return sequence == o.sequence && count == o.count && segments == o.segments && kind == o.kind && dtype == o.dtype && op == o.op;
}

Handshake::Handshake(MPI_Comm comm, std::vector<int> ranks, int me, DescribeLine describe)
    : comm_(comm), ranks_(std::move(ranks)), me_(me), describe_(std::move(describe)), promises_(me == 0 ? ranks_.size() : 1) {}

void Handshake::begin(const Move& move, std::int64_t sequence) {
    compared_ = false;
    Promise& mine = promises_[0];
    mine = {.sequence = sequence, .segments = static_cast<std::int64_t>(move.segments.size()), .kind = static_cast<std::int32_t>(move.kind),
            .dtype = static_cast<std::int32_t>(move.dtype), .op = static_cast<std::int32_t>(move.op), .program = move.origin.program,
            .line = move.origin.line};
    for (const Segment& segment : move.segments) mine.count += segment.count;
    requests_.assign(me_ == 0 ? ranks_.size() - 1 : 2, MPI_REQUEST_NULL);
    if (me_ != 0) {
        mpi_check(MPI_Isend(&mine, sizeof mine, MPI_BYTE, 0, promise_tag, comm_, &requests_[0]));
        mpi_check(MPI_Irecv(nullptr, 0, MPI_BYTE, 0, go_tag, comm_, &requests_[1]));
        return;
    }
    for (std::size_t m = 1; m < ranks_.size(); ++m)
        mpi_check(MPI_Irecv(&promises_[m], sizeof mine, MPI_BYTE, static_cast<int>(m), promise_tag, comm_, &requests_[m - 1]));
}

bool Handshake::agreed() {
    int done = 0;
    mpi_check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE));
    if (done == 0) return false;
    if (me_ == 0 && !compared_) {
        compare();
        compared_ = true;
        for (std::size_t m = 1; m < ranks_.size(); ++m)
            mpi_check(MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(m), go_tag, comm_, &requests_[m - 1]));
        return agreed();
    }
    return true;
}

void Handshake::compare() const {
    for (std::size_t m = 1; m < promises_.size(); ++m) {
        if (promises_[m].agrees_with(promises_[0])) continue;
        throw Error(Exit::rank_failed, fmt::format("comm.check: two ranks of a group differ in what they are about to do\n  {}\n  {}",
                                                   text_of(promises_[0], 0), text_of(promises_[m], static_cast<int>(m))));
    }
}

std::string Handshake::text_of(const Promise& p, int member) const {
    const int rank = ranks_[static_cast<std::size_t>(member)];
    const auto kind = static_cast<MoveKind>(p.kind);
    const bool reduces = kind == MoveKind::all_reduce || kind == MoveKind::reduce_scatter;
    std::string text = fmt::format("rank {} begins {}{} {} of {} {} elements in {} tensors", rank, name_of(kind),
                                   !reduces ? "" : static_cast<ReduceOp>(p.op) == ReduceOp::max ? " (max)" : " (sum)", p.sequence, p.count,
                                   name_of(static_cast<DType>(p.dtype)), p.segments);
    const std::string line = describe_ && p.line >= 0 ? describe_(rank, {p.program, p.line, {}}) : std::string();
    return line.empty() ? text : text + ":\n      " + line;
}

}  // namespace quadrille
