// The loader: a thread that reads the batches of coming steps ahead of their use. Owns the buffers and the thread; which
// sequences a rank needs is arithmetic (SequenceBlock), what they hold is the BatchReader's. The bits never depend on the depth.
#pragma once
#include "data/batch.hpp"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace quadrille {

// The sequences of one dp rank in a global batch of dp·micro_batch·accumulation: micro-batch m holds the indices
// m·(micro_batch·dp) + dp_rank·micro_batch + 0 … micro_batch − 1.
struct SequenceBlock {
    std::int64_t dp = 1, dp_rank = 0, micro_batch = 1, accumulation = 1;
    std::vector<std::int64_t> indices() const;  // [accumulation · micro_batch], micro-batch by micro-batch
};

// One dp rank's part of a step: micro-batch m is rows m·micro_batch … (m + 1)·micro_batch − 1 of `batch`.
struct StepBatch {
    std::int64_t step = 0;
    Batch batch;
};

class Loader {
  public:
    // Serves steps first_step, first_step + 1, … end_step − 1 (from 0). `depth` batches, at least 1, are read ahead.
    // The reader must outlive the loader.
    Loader(const BatchReader& reader, const SequenceBlock& block, std::int64_t first_step, std::int64_t end_step, int depth);
    ~Loader();
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;

    // The next step's batch, waiting for it if need be; valid until the next call. Rethrows what the reading threw (and again
    // on every later call). Not collective. Calling it more than end_step − first_step times is an error of the caller.
    const StepBatch& next();

  private:
    void work();
    void read_step(std::int64_t step);
    StepBatch& slot(std::int64_t step) { return ring_[static_cast<std::size_t>(step - first_) % ring_.size()]; }

    const BatchReader& reader_;
    std::vector<std::int64_t> indices_;
    std::int64_t first_, end_;
    std::vector<StepBatch> ring_;  // one in use and `depth` ahead

    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t ready_;     // steps below it have been read
    std::int64_t wanted_;    // the step that next() serves next; wanted_ − 1 is in use
    bool stopping_ = false;
    std::exception_ptr failure_;
    std::thread thread_;
};

}  // namespace quadrille
