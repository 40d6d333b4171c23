// What is said of a stop, and the end of a job that the environment tells.
#include "train/stop.hpp"

#include <doctest.h>

#include <csignal>
#include <cstdlib>
#include <ctime>

using namespace quadrille;

TEST_CASE("a stop says who asked") {
    CHECK(text({StopReason::Kind::signal, 3, SIGUSR1}, 0) == "SIGUSR1, which rank 3 got");
    CHECK(text({StopReason::Kind::signal, 0, SIGTERM}, 0) == "SIGTERM, which rank 0 got");
    CHECK(text({StopReason::Kind::time_limit, 0, 0}, 1800.5) == "train.time_limit 1800.5 s");
    CHECK(text({StopReason::Kind::slurm_end, 2, 0}, 0) == "the end of the Slurm job (SLURM_JOB_END_TIME of rank 2)");
}

TEST_CASE("the seconds of a Slurm job; what is no time, or past, is none") {
    const auto of = [](const char* value) {
        setenv("SLURM_JOB_END_TIME", value, 1);
        return seconds_of_job();
    };
    const auto left = of(std::to_string(std::time(nullptr) + 3600).c_str());
    REQUIRE(left);
    CHECK((*left > 3590 && *left <= 3601));
    for (const char* value : {"", "soon", "12h", "0", "-5", "1000000000"}) CHECK_FALSE(of(value));
    unsetenv("SLURM_JOB_END_TIME");
    CHECK_FALSE(seconds_of_job());
}
