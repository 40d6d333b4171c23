// Fibers: begun through ucontext, which makes a system call to keep the signal mask, and switched by _setjmp and _longjmp, which make none.
#undef _FORTIFY_SOURCE  // its longjmp refuses to go to another stack
#include "emulator/fiber.hpp"

#include <cstdint>
#include <new>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

// AddressSanitizer must be told of each change of stacks; in a build without it there is nobody to tell.
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* size) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void* begin, std::size_t size) __attribute__((weak));
}

namespace quadrille::emulator {

namespace {

constexpr std::size_t stack_bytes = std::size_t{256} << 10;  // only what is touched takes memory
std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber() = default;

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), begun_(false) {
    const std::size_t guard = page_bytes();
    void* const p = mmap(nullptr, guard + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::byte*>(p);
    mprotect(mapping_, guard, PROT_NONE);
    stack_bottom_ = mapping_ + guard;
    stack_bytes_ = stack_bytes;
}

Fiber::~Fiber() {
    if (mapping_) munmap(mapping_, page_bytes() + stack_bytes);
}

void Fiber::forget() {
    begun_ = false;
    fake_stack_ = nullptr;
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(stack_bottom_, stack_bytes_);
}

void Fiber::arrived() {
    if (!__sanitizer_finish_switch_fiber) return;
    const void* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &size);
    if (!from_->mapping_) from_->stack_bottom_ = bottom, from_->stack_bytes_ = size;
}

// makecontext hands over integers alone: the fiber's address comes in two halves.
void Fiber::enter(unsigned high, unsigned low) {
    auto* const self = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
    self->arrived();
    for (;;) self->body_();
}

void Fiber::leave_for(Fiber& other) {
    if (other.begun_) _longjmp(other.resume_, 1);
    other.begun_ = true;
    // Not on the stack that is left: AddressSanitizer would find the marks around it there when somebody switches back.
    static thread_local ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = other.mapping_ + page_bytes();
    // Stacks begin at different places of a page: else the frames of all fibers would want the same lines of the cache.
    const auto address = reinterpret_cast<std::uintptr_t>(&other);
    context.uc_stack.ss_size = stack_bytes - address / 64 % 64 * 64;
    context.uc_link = nullptr;
    makecontext(&context, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
    setcontext(&context);
}

void Fiber::switch_to(Fiber& other) {
    other.from_ = this;
    if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&fake_stack_, other.stack_bottom_, other.stack_bytes_);
    if (_setjmp(resume_) == 0) leave_for(other);
    arrived();
}

}  // namespace quadrille::emulator
