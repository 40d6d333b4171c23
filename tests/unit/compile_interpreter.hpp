// Runs the programs of all ranks in one process, in float64, and trusts nothing: an independent reading of what a program means.
//
// One arena per rank, byte-addressed as lay_out has it, tier behind tier; an element is readable only where the last write put the whole of it,
// freed memory is poisoned, and kernels are the plain formulas. A collective is assembled from what the members' types say they
// hold, never from knowledge of the pair; a send blocks until its receive is posted, and what it carries lands as late as it may.
// All values are float64 whatever their type: programs in bf16, fp16 and fp32 mean the same here. Data, weights and masks are functions
// of global indices, so the program for one rank gives the reference. No queues and no time.
#pragma once
#include "ir/program.hpp"

#include <map>
#include <string>
#include <vector>

namespace quadrille::test {

// Large eps: a parameter whose true gradient is 0 (a key bias) must not move by the rounding of its sign.
struct Settings {
    int steps = 2;
    std::uint64_t seed = 5;
    double lr = 2e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-3, weight_decay = 0.1;
    std::int64_t vocab = 0;
    bool poison = true;  // memory that lay_out counts as free; off for programs whose ops were moved since
    double loss_scale = 1024;  // for programs that scale the loss
    double unsent = 0;   // the part of a gradient that packets leave out, into the residual; 0: packets are what they are made of
    double nudge = 0;    // initial weights that are trained plus this times a fixed direction: for central differences
};

struct Numbers {
    std::vector<double> loss, norm2, tokens;             // per step; what no coordinate makes is not there
    std::map<std::string, std::vector<double>> weights;  // fp32 masters after the last step, global, without padding
};

// Throws std::runtime_error where the programs cannot finish, their ranks disagree, or an op is beyond any kernel.
Numbers interpret(const std::vector<Program>&, const Settings&);

// Largest difference of any number, relative to the largest of its kind; infinity where shapes differ or a number is no number.
double difference(const Numbers&, const Numbers&);

// Of the direction in which Settings::nudge moves the weights: its element of a parameter.
double nudge_direction(const std::string& parameter, std::int64_t element);

}  // namespace quadrille::test
