// The work on the emulated device's streams. A call queues its work; only calls that wait or ask run any, one piece at a time, of a stream drawn at
// random among those that may go on: in the order of each stream, and after the events it waits for, nothing else. So a wait that is missing shows as
// a wrong result, for some seed, and memory that goes too early too. Unlike on a device the default stream waits for no other, and other streams not
// for it.
#pragma once
#include "cuda_runtime_api.h"

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace quadrille::emulator {

// A point of a stream that an event stands for.
struct Point {
    bool reached = false;
    double seconds = 0;
};

struct Work {
    std::function<void()> run;
    std::shared_ptr<Point> after;  // may be null
};

}  // namespace quadrille::emulator

struct CUstream_st {
    std::deque<quadrille::emulator::Work> queue;
    bool destroyed = false;  // goes when its queue is empty
};

struct CUevent_st {
    std::shared_ptr<quadrille::emulator::Point> recorded;  // null before the first record
    bool timed = true;
};

namespace quadrille::emulator {

class Streams {
  public:
    // One caller at a time; held while work runs.
    std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

    CUstream_st* make();
    // Null stands for the default stream. Null where there is no such stream.
    CUstream_st* find(cudaStream_t);
    void add(CUstream_st&, Work);
    // Runs work until `done()`. Throws Fault where all streams wait for events that nobody will record.
    void run_until(const std::function<bool()>& done);
    // Runs some work, or none.
    void run_some();
    void run_all();

  private:
    bool step();

    std::mutex mutex_;
    std::vector<std::unique_ptr<CUstream_st>> streams_;
    CUstream_st default_;
};

Streams& streams();

}  // namespace quadrille::emulator
