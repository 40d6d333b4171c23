// The console: one line per interval, nothing from silent ranks, warnings apart from results, redrawing only on a terminal.
#include "record/console.hpp"

#include <doctest.h>
#include <fcntl.h>
#include <unistd.h>
#include <cmath>
#include <cstdlib>

using namespace quadrille;

namespace {

std::string contents(std::FILE* file) {
    std::rewind(file);
    std::string text;
    for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
    std::fclose(file);
    return text;
}

StepRow row(std::int64_t step) { return {step, 5.25, 1.5, 1, 1e-3, 1, 1000, 0.5, 0}; }

}  // namespace

TEST_CASE("a line per log interval and after the last step") {
    std::FILE *out = std::tmpfile(), *err = std::tmpfile();
    {
        Console console({true, 5, 2, 0, 0}, out, err);
        for (std::int64_t k = 1; k <= 5; ++k) console.step(row(k));
    }
    CHECK(contents(err).empty());
    CHECK(contents(out) ==
          "step 2/5  loss 5.250000  grad norm 1.5  lr 1.000e-03  2.00 k tokens/s  MFU n/a  left 1.50 s\n"
          "step 4/5  loss 5.250000  grad norm 1.5  lr 1.000e-03  2.00 k tokens/s  MFU n/a  left 500 ms\n"
          "step 5/5  loss 5.250000  grad norm 1.5  lr 1.000e-03  2.00 k tokens/s  MFU n/a  left 0 s\n");
}

TEST_CASE("fp16's lines tell the loss scale") {
    std::FILE *out = std::tmpfile(), *err = std::tmpfile();
    Console console({true, 100, 1, 0, 0, true}, out, err);
    StepRow scaled = row(1);
    scaled.loss_scale = 1073741824;
    console.step(scaled);
    CHECK(contents(out).find("grad norm 1.5  loss scale 1073741824  lr 1.000e-03") != std::string::npos);
    std::fclose(err);
}

TEST_CASE("MFU where the peak is known, NaN shown as it is") {
    std::FILE *out = std::tmpfile(), *err = std::tmpfile();
    Console console({true, 100, 1, 1e9, 1e10}, out, err);
    StepRow bad = row(1);
    bad.loss = std::nan("");
    console.step(bad);
    const std::string text = contents(out);
    CHECK(text.find("MFU 20.0 %") != std::string::npos);
    CHECK(text.find("step   1/100  loss nan") != std::string::npos);
    std::fclose(err);
}

TEST_CASE("warnings and errors go to stderr, and silent ranks are silent") {
    std::FILE *out = std::tmpfile(), *err = std::tmpfile();
    Console speaker({}, out, err), silent({false, 1, 1, 0, 0}, out, err);
    for (Console* console : {&speaker, &silent}) {
        console->print("result");
        console->warning("odd");
        console->error("bad");
    }
    silent.step(row(1));
    CHECK(contents(out) == "result\n");
    CHECK(contents(err) == "quadrille: warning: odd\nquadrille: bad\n");
}

TEST_CASE("a terminal's line is redrawn between intervals and cleared before other text") {
    const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) {
        MESSAGE("no pseudo-terminal here: not tested");
        return;
    }
    std::FILE *out = std::fopen(::ptsname(terminal), "w"), *err = std::fopen(::ptsname(terminal), "w"), *file = std::tmpfile();
    REQUIRE(out);
    {
        Console batch({true, 4, 2, 0, 0}, out, file);  // mpirun's pseudo-terminal before a log: only standard error tells
        batch.step(row(1));
    }
    {
        Console console({true, 4, 2, 0, 0}, out, err);
        console.step(row(1));
        console.step(row(2));
    }
    char text[4096];
    std::string seen;
    while (seen.find("step 2/4") == std::string::npos || seen.back() != '\n') {
        const ssize_t count = ::read(terminal, text, sizeof text);
        REQUIRE(count > 0);
        seen.append(text, static_cast<std::size_t>(count));
    }
    CHECK(seen.starts_with("\rstep 1/4"));
    CHECK(seen.find("\x1b[K\r\x1b[Kstep 2/4") != std::string::npos);
    std::fclose(out);
    std::fclose(err);
    std::fclose(file);
    ::close(terminal);
}
