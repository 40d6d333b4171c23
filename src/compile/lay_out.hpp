// Gives every buffer its place in its tier's arena, and finds the peak of memory, before a byte is allocated.
#pragma once
#include "ir/program.hpp"

#include <concepts>
#include <functional>
#include <utility>

namespace quadrille {

// What running a program takes beside its tensors.
struct Workspace {
    // Bytes of scratch memory that an op's kernel needs; 0 for none. A function of the op's kind, attributes and operand types alone, so it is
    // asked once for all microbatches.
    std::function<std::int64_t(const Program&, const Op&)> of_op;
    std::int64_t of_group = 0;  // bytes of staging, where messages lie, for each group of ranks that collectives go over
    std::int64_t of_disk = 0;   // bytes of staging in host memory where there is an nvme tier
    bool snapshot = false;      // of what a rank writes of a checkpoint, in host memory (training alone)
    bool through_host = false;  // what moves between ranks does so from and to host memory (compile/staging.hpp)

    Workspace() = default;
    template <std::invocable<const Program&, const Op&> F>
    Workspace(F f, std::int64_t group = 0, std::int64_t disk = 0, bool behind = false)
        : of_op(std::move(f)), of_group(group), of_disk(disk), snapshot(behind) {}
};

constexpr std::int64_t buffer_alignment = 64;   // bytes, in memory
constexpr std::int64_t disk_alignment = 4096;   // in the nvme tier, and in host memory, whose buffers go there: what every disk takes

// Fills Buffer::bytes, offset, first and last, Op::workspace, Program::peaks and staging. The training state comes first, in the order of its
// declaration, so that all programs of one coordinate find it at the same place. A buffer is occupied from the first op that touches it
// to the last, an asynchronous op touching its operands until Op::until. Of several ways to give places the one that needs
// least is kept. Behind all buffers of host memory lies the snapshot, and behind all of a tier its staging, in host memory the disk's last; all in
// the book `buffers`.
void lay_out(Program&, const Workspace&);

}  // namespace quadrille
