// For a rank that has failed among calls of all ranks: it calls on, with nothing, for the others' sake, and throws its first failure at the end.
#pragma once
#include <exception>

namespace quadrille {

class FirstFailure {
  public:
    // Whatever `work` throws, memory that is refused too: no call of the others may be left without this rank's.
    template <class Work>
    void attempt(Work work) {
        try {
            work();
        } catch (...) {
            if (!first_) first_ = std::current_exception();
        }
    }
    bool any() const { return first_ != nullptr; }
    void rethrow() const {
        if (first_) std::rethrow_exception(first_);
    }

  private:
    std::exception_ptr first_;
};

}  // namespace quadrille
