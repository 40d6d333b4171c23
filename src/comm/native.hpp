// A collective carried by the MPI library's own nonblocking collectives, in calls of so few bytes that the watchdog sees them end, and that what the
// library takes for its sums stays small (an all_to_all is one call, whatever its size: a member does not know the others' counts).
//
// All members make the same calls in the same order, on a communicator that no other move uses meanwhile. Buffers go as they are where
// the library can take them so. A reduce_scatter is packed, a portion of each slice per call: its result may lie in its input, where
// MPI forbids it. The library decides in which order it sums, so bits may depend on the count; the bytes are those of the ring's formula,
// since nobody sees the true ones.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "comm/move_carrier.hpp"

namespace quadrille {

// What the library must know of our element types. Made and freed while MPI runs.
class NativeTypes {
  public:
    NativeTypes();
    ~NativeTypes();
    NativeTypes(const NativeTypes&) = delete;
    NativeTypes& operator=(const NativeTypes&) = delete;

    MPI_Datatype type(DType dtype) const;
    MPI_Op op(ReduceOp op, DType dtype) const;

  private:
    MPI_Datatype half_ = MPI_DATATYPE_NULL;  // two bytes: bf16, f16
    std::map<std::pair<ReduceOp, DType>, MPI_Op> ops_;  // that the library has not, or has with another meaning
};

class Native final : public MoveCarrier {
  public:
    bool advance() override;
    bool finished() const override { return done_ == calls_; }

  private:
    void begin() override;
    static constexpr int window = 2;                               // calls in flight
    static constexpr std::int64_t call_bytes = std::int64_t{32} << 20;  // of the whole buffer
    enum class Form {
        chunks,  // all_reduce: stretches of the segments
        places,  // all_gather: a portion of every slice of a segment, to where it stands
        rounds,  // reduce_scatter, and an all_gather of slices in several pieces: a portion of every slice of all segments, packed
        types,   // all_to_all: one call, whose types say where the slices lie
    };
    struct Call {  // what the library reads until it has ended
        std::int64_t index = -1;
        std::vector<int> counts, places, in_counts;
        std::vector<MPI_Datatype> types, in_types;
        std::byte* staging = nullptr;
    };

    void choose_form();
    Extent stretch(std::size_t segment, int member) const;
    bool stretches() const;
    std::int64_t portions(std::size_t segment) const;
    void post(int place);
    void post_chunk(MPI_Request& request);
    void post_places(Call& call, MPI_Request& request);
    void post_round(Call& call, MPI_Request& request);
    void post_types(Call& call, MPI_Request& request);
    void complete(Call& call);
    Portion round_portion(int slice, std::int64_t round) const;

    Form form_ = Form::chunks;
    std::int64_t most_ = 0;     // elements in one call
    std::int64_t portion_ = 0;  // places, rounds: elements of a slice
    std::int64_t calls_ = 0, posted_ = 0, done_ = 0;
    std::size_t segment_ = 0;  // chunks, places: where the next call begins, in elements of the segment or of each of its slices
    std::int64_t offset_ = 0;

    std::array<Call, window> call_;
    std::array<MPI_Request, window> requests_;
    std::array<int, window> completed_{};
    std::array<MPI_Status, window> statuses_{};
    std::vector<int> lengths_;  // of a type that is being made
    std::vector<MPI_Aint> addresses_;
};

}  // namespace quadrille
