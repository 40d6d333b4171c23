// A vote beside work: all ranks learn the largest number, whoever began first; one that nobody ends does not outlive its ballot.
#include "mpi_main.hpp"

#include "comm/ballot.hpp"

namespace quadrille::test {

TEST_CASE("every rank learns the largest number of all, vote by vote") {
    Ballot ballot(world());
    constexpr std::int64_t large = std::int64_t{1} << 40;
    for (std::int64_t vote = 0; vote < 100; ++vote) {
        ballot.begin(vote % world().size() == world().rank() ? large + vote : 0);
        CHECK(ballot.end() == large + vote);
    }
    ballot.begin(0);
    CHECK(ballot.end() == 0);
    CHECK_THROWS(ballot.end());
    ballot.begin(1);
    CHECK_THROWS(ballot.begin(1));
}

}  // namespace quadrille::test
