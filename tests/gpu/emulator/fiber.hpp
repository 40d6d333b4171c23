// Threads of control on one processor that switch only where they say so: each emulated CUDA thread is one. A fiber calls its body
// again and again, so that its stack is made once for many blocks.
#pragma once
#include <csetjmp>
#include <cstddef>
#include <functional>

namespace quadrille::emulator {

class Fiber {
  public:
    // The thread of control that runs now, on the stack it has.
    Fiber();
    // A new one, with a stack of its own: once switched to it calls `body` again and again, which switches away where it waits and at its end.
    explicit Fiber(std::function<void()> body);
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Control goes from this fiber, which must be the running one, to the other, and returns when somebody switches back.
    void switch_to(Fiber& other);
    // What ran on the stack is forgotten, without unwinding: the next switch begins the body anew.
    void forget();

  private:
    static void enter(unsigned high, unsigned low);
    void leave_for(Fiber& other);
    void arrived();

    std::function<void()> body_;
    std::byte* mapping_ = nullptr;  // a guard page, then the stack
    std::jmp_buf resume_;
    bool begun_ = true;
    Fiber* from_ = nullptr;               // who switched here
    void* fake_stack_ = nullptr;          // AddressSanitizer's
    const void* stack_bottom_ = nullptr;  // as AddressSanitizer wants to know it
    std::size_t stack_bytes_ = 0;
};

}  // namespace quadrille::emulator
