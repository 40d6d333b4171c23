// Memory that ranks of one node share: an MPI window with a part for each of them, which all can read and write. Owns the window; what stands in
// the parts, and who writes where, is its users' to say.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quadrille {

class SharedMemory {
  public:
    static constexpr std::size_t alignment = 64;  // of every part: a cache line

    // Parts of so many bytes. Collective over comm, whose members are on one node. This member's part is zeroed, hence touched; the others' are what
    // their members make of them: they are good after a barrier. Error{rank_failed} if the MPI library has no such memory; where the system has
    // less than it promised, the process dies of SIGBUS, so see `room` before.
    SharedMemory(MPI_Comm comm, std::int64_t bytes);
    // Gives the memory back. Collective; whoever ends alone leaves it to the end of the process.
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    int members() const { return static_cast<int>(parts_.size()); }
    std::byte* part(int member) const { return parts_[static_cast<std::size_t>(member)]; }

    // What a part of so many bytes takes from the system: whole pages, and one for what the library adds.
    static std::int64_t taken(std::int64_t bytes);
    // Bytes free where the MPI library puts windows, as far as that is known; else as many as there are.
    static std::int64_t room();

  private:
    MPI_Win window_ = MPI_WIN_NULL;
    std::vector<std::byte*> parts_;  // by member
};

}  // namespace quadrille
