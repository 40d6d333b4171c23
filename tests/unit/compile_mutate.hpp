// Breaks the programs of each subject in every kind and judges: refused by the verifier with the op's line, or run and found
// harmless.
#pragma once
#include "compile_fixture.hpp"
#include "compile_mutations.hpp"

#include <set>

namespace quadrille::test {

struct NamedSubject {
    const char* name;
    Config config;
    Workspace workspace = some_workspace;
};

// What each executable owes: so many mutants at least, of every kind but those that its subjects have no place for.
struct Share {
    const char* name;
    int least;
    std::set<std::string_view> lacks;
};
const std::vector<Share>& shares();
std::vector<MutationKind> all_mutations();

// Prints the table kinds x made, caught, harmless, missed, and fails the test for every miss, every refusal without a line, and where the share
// is not kept. Ten mutants of each kind for each subject, as far as it has places for them; in a sanitizer's build two.
void break_and_judge(const char* share, const std::vector<NamedSubject>& subjects);

}  // namespace quadrille::test
