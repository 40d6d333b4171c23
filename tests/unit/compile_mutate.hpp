// Breaks the programs of each subject in every kind and judges: refused by the verifier with the op's line, or run and found
// harmless.
#pragma once
#include "compile_fixture.hpp"

namespace quadrille::test {

struct NamedSubject {
    const char* name;
    Config config;
};

// Prints the table kinds x made, caught, harmless, missed, and fails the test for every miss and every refusal without a line.
// `per_kind` mutants of each kind for each subject, as far as it has places for them.
void break_and_judge(const std::vector<NamedSubject>& subjects, std::size_t per_kind);

}  // namespace quadrille::test
