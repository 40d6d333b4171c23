// What one move of data between ranks is: kind, buffers, who takes part. Plain data, made once with the program; the Engine
// runs it. Counts are in elements and 64 bits wide.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "grid/grid.hpp"
#include "ir/dtype.hpp"
#include "ir/extents.hpp"

namespace quadrille {

enum class MoveKind { all_reduce, reduce_scatter, all_gather, all_to_all, ring_shift, send, receive };
std::string_view name_of(MoveKind);
enum class ReduceOp { sum, max };
// urgent: something computes next with it (tp, sp, pp). bulk: gradient buckets, prefetched parameters.
enum class Priority { urgent, bulk };

// One member's elements of a whole buffer, in canonical order: the order in which they stand in that member's own contiguous
// buffer. A single extent is used in place; several are packed on the way out and unpacked on arrival.
using Slice = Extents;

// all_reduce: whole -> whole (in == out allowed). reduce_scatter: whole -> my slice. all_gather: my slice -> whole (in may be
// where the slice stands in out). all_to_all: whole -> whole (in != out). ring_shift: in -> the next member, the previous
// member's -> out (in != out). send reads in, receive writes out. `count`: elements of the whole (group-wide) buffer.
struct Segment {
    const void* in = nullptr;
    void* out = nullptr;
    std::int64_t count = 0;
};

// What a stage message is. Both ends give the same; it is checked on arrival. Kind tells forward from backward from whatever
// else goes between the same two ranks, which may be each other's next and previous at once.
struct MessageTag {
    std::int32_t kind = 0, chunk = 0, microbatch = 0;
};

// Where in a job's programs a move stands: only said back, to whoever can describe it. -1: nowhere.
struct Origin {
    std::int32_t program = -1, line = -1;
    AxisSet axes;  // that it goes over
    bool operator==(const Origin&) const = default;
};
// The line at `origin` of the program that this rank of the world runs, as text.
using DescribeLine = std::function<std::string(int rank, const Origin& origin)>;

struct Move {
    MoveKind kind = MoveKind::all_reduce;
    ReduceOp op = ReduceOp::sum;    // all_reduce, reduce_scatter
    DType dtype = DType::f32;       // reduced: f32, f64, bf16, f16, i32; moved: any
    int group = -1;                 // from Engine::group; all kinds but send and receive
    std::vector<Segment> segments;  // moved together in one pass
    // One Slice per segment and member, that of segment k and member i of n at k·n + i. in_slices: reduce_scatter (whose sum ends
    // where), all_to_all (what I send to each member); out_slices: all_gather, all_to_all (where what each member sends goes).
    // Empty: member i has the elements equal_cut(count, n, i) of every segment; an all_reduce is always cut so.
    std::vector<Slice> in_slices, out_slices;
    int peer = -1;       // send, receive: world rank
    MessageTag message;  // send, receive
    Priority priority = Priority::urgent;
    Origin origin;
};

// Seconds on this rank's now().
struct MoveTimes {
    double issued = 0;   // given to the engine
    double entered = 0;  // begun here: what it waits for was done
    double finished = 0;
    double peer_entered = 0;  // receive: when the sender entered its send, on this rank's clock; else = entered
    // Bytes that counted for this rank: a byte counts for the rank whose data it is, once per peer that it goes to, whoever
    // forwards it. n members, mine = my slice, whole = the whole buffer: reduce_scatter whole - mine, all_gather mine·(n-1),
    // all_reduce the sum of both, all_to_all what I send to others, ring_shift and send the buffer (ring_shift of one member: 0).
    std::int64_t sent_bytes = 0;
};

}  // namespace quadrille
