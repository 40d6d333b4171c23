#include "compile/verify.hpp"

#include "base/error.hpp"
#include "ir/print.hpp"

namespace quadrille {

std::string text(const std::vector<Program>& programs, const Fault& f) {
    std::string s = f.coordinate < 0 ? "" : fmt::format("pp {}: ", f.coordinate);
    if (f.coordinate >= 0 && f.op >= 0) s += text(programs[static_cast<std::size_t>(f.coordinate)], static_cast<std::size_t>(f.op)) + ": ";
    return s + f.reason;
}

Faults verify(const std::vector<Program>& programs, const Program& serial) {
    Faults faults;
    for (const Program& p : programs) verify_types(p, faults);
    if (!faults.empty()) return faults;
    for (const Program& p : programs) verify_memory(p, faults);
    if (!faults.empty()) return faults;
    verify_messages(programs, faults);
    if (!faults.empty()) return faults;
    verify_meaning(programs, serial, faults);
    return faults;
}

void require_sound(const std::vector<Program>& programs, const Program& serial) {
    const Faults faults = verify(programs, serial);
    if (!faults.empty()) require(false, "the compiled program is unsound: " + text(programs, faults[0]));
}

}  // namespace quadrille
