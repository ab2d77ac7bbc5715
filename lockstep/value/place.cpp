#include "lockstep/value/place.h"

namespace lockstep {
namespace {
thread_local CurrentPlace place_of_this_thread;
}  // namespace

const CurrentPlace& current_place() { return place_of_this_thread; }

namespace detail {

PlaceGuard::PlaceGuard(CurrentPlace place) : before_(place_of_this_thread) { place_of_this_thread = place; }

PlaceGuard::~PlaceGuard() { place_of_this_thread = before_; }

}  // namespace detail
}  // namespace lockstep
