// The loss scale's rule: halved at each overflow down to the minimum, doubled after a window of finite steps in a row.
#include "train/loss_scale.hpp"

#include <doctest.h>

using namespace quadrille;

TEST_CASE("every overflow halves, down to the minimum and no further") {
    LossScale s({.initial = 16, .window = 3, .minimum = 4});
    CHECK(s.value() == 16);
    CHECK(s.overflowed());
    CHECK(s.value() == 8);
    CHECK(s.overflowed());
    CHECK(s.value() == 4);
    CHECK_FALSE(s.overflowed());
    CHECK(s.value() == 4);
}

TEST_CASE("a window of finite steps doubles; an overflow begins the count anew") {
    LossScale s({.initial = 1024, .window = 3, .minimum = 1});
    s.finite();
    s.finite();
    CHECK(s.value() == 1024);
    CHECK(s.good_steps() == 2);
    s.finite();
    CHECK(s.value() == 2048);
    CHECK(s.good_steps() == 0);
    s.finite();
    s.finite();
    CHECK(s.overflowed());
    CHECK(s.value() == 1024);
    CHECK(s.good_steps() == 0);
    s.finite();
    s.finite();
    CHECK(s.value() == 1024);
    s.finite();
    CHECK(s.value() == 2048);
}

TEST_CASE("a scale found before goes on with its good steps, inside the bounds of the new input") {
    LossScale s({.initial = 1024, .window = 3, .minimum = 1}, 64, 2);
    CHECK(s.value() == 64);
    CHECK(s.good_steps() == 2);
    s.finite();
    CHECK(s.value() == 128);
    CHECK(s.good_steps() == 0);
    CHECK(LossScale({.initial = 1024, .window = 3, .minimum = 16}, 4, 0).value() == 16);
    LossScale narrow({.initial = 1024, .window = 2, .minimum = 1}, 64, 5);  // a window shorter than what was good already
    narrow.finite();
    CHECK(narrow.value() == 128);
    CHECK(narrow.good_steps() == 0);
}

TEST_CASE("no scale is larger than 2^40, where gradients of nothing would lead") {
    LossScale s({.initial = 0x1p39, .window = 1, .minimum = 1});
    for (int k = 0; k < 100; ++k) s.finite();
    CHECK(s.value() == 0x1p40);
}
