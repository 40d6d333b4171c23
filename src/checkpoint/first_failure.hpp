// For a rank that has failed among calls of all ranks: it calls on, with nothing, for the others' sake, and throws its first failure at the end.
#pragma once
#include "base/error.hpp"

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
    // As an Error, but for refused memory: what these kinds are `together` makes known to all, and they leave the calls in order. Of any other kind
    // the unwinding would close what all have open while the others wait elsewhere.
    void rethrow() const {
        if (!first_) return;
        try {
            std::rethrow_exception(first_);
        } catch (const Error&) {
            throw;
        } catch (const std::exception& e) {
            const Failure failure = failure_of(e);
            if (failure.exit == Exit::no_memory) throw;
            throw Error(failure.exit, failure.message);
        }
    }

  private:
    std::exception_ptr first_;
};

}  // namespace quadrille
