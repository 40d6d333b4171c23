// What reaches beyond a rank's device passes through host memory: for devices whose memory no message can be taken from or brought to.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

// Behind this pass the operands of every move between ranks are in host memory, as is what is loaded and the scalars that the loop reads; moves
// between the tiers bring them there and back. What is in host memory already is taken from there, and what a rank sends on stays there: a result
// comes to the device if an op reads it there. A result in its operand's place has that place in host memory too. Positions are made on the device.
//
// What is sent is copied out as soon as it is made, if that is in the same action, else in front of its move; results are copied in right behind.
// How long each may take is for `overlap` to say.
void stage_through_host(Program&);

}  // namespace quadrille
