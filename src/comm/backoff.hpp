// How long somebody who polls stays off the CPU when nothing happens. Cores are often shared by more threads than there are;
// whoever spins there takes time from the thread that computes what is waited for.
#pragma once

namespace quadrille {

class Backoff {
  public:
    enum class Core {
        own,         // nobody else needs it: spin, then yield, never sleep
        shared,      // a thread that has nothing else to do: yield for a while, then sleep
        background,  // somebody computes there meanwhile: sleep almost at once (a yield would come back first, and again)
    };
    explicit Backoff(Core core) : core_(core) {}
    void reset() { idle_ = 0; }
    // Called once for each look that found nothing: a pause, a yield or a short sleep, by how many came before.
    void idle();

  private:
    Core core_;
    int idle_ = 0;
};

// Lets short sleeps of the calling thread be short (Linux rounds them up by 50 us otherwise).
void allow_short_sleeps();

}  // namespace quadrille
