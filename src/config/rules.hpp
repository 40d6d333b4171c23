// A rule between keys, and what is said where it is broken.
#pragma once
#include "config/problems.hpp"
#include "config/settings.hpp"

#include <initializer_list>
#include <string>

namespace quadrille::input {

class Rules {
  public:
    Rules(const Settings& settings, Problems& problems) : settings_(settings), problems_(problems) {}

    // Unless `ok`, adds `sentence` at the first of `keys` that is an override, else that was written (else about the first): what was changed last
    // is what broke the rule. Says nothing, and returns true,
    // where one of them is unusable already: its default would be blamed for what nobody wrote.
    bool expect(std::initializer_list<const char*> keys, bool ok, const std::string& sentence);

  private:
    const Settings& settings_;
    Problems& problems_;
};

}  // namespace quadrille::input
