#pragma once

#include <string>

namespace lockstep::comm {

/// Names the card of a GPU, equal in all processes: CUDA_VISIBLE_DEVICES does not matter. Makes no context on it.
std::string name_of_card(int device);

/// Whether a card may have several ranks of a group. The stand-in of the tests has another file for it.
bool ranks_may_share_a_card();

}  // namespace lockstep::comm
