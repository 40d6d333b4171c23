// What is said of a stop, and the end of a job that the environment tells.
#include "train/stop.hpp"

#include "comm/world.hpp"

#include <doctest.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>

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

TEST_CASE("the seconds that a process has: to the nearer of both ends; too few for a step are refused with both numbers") {
    unsetenv("SLURM_JOB_END_TIME");
    CHECK(std::isinf(seconds_left(now(), 0)));
    CHECK(std::abs(seconds_left(now() - 10, 60) - 50) < 1);
    setenv("SLURM_JOB_END_TIME", std::to_string(std::time(nullptr) + 30).c_str(), 1);
    CHECK(std::abs(seconds_left(now() - 10, 60) - 30) < 2);
    CHECK(std::abs(seconds_left(now() - 40, 60) - 20) < 1);
    unsetenv("SLURM_JOB_END_TIME");
    const Error limit = no_time(3, 2.25, 3.5), job = no_time(0, -1, 3.5);
    CHECK(limit.exit() == Exit::refused);
    CHECK(std::string(limit.what()) == "train.time_limit is 3 s, of which 2.2 s are left before the first step, and 3.5 s are needed to stop and "
                                       "save: not one step fits; allowed: more time");
    CHECK(std::string(job.what()).starts_with("the Slurm job has its time, of which 0.0 s are left"));
}
