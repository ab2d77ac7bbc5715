#pragma once

#include <cstdint>
#include <utility>

#include "lockstep/api.h"
#include "lockstep/data/node.h"
#include "lockstep/device/random.h"

/// Internal: random numbers of users' functions in a pipeline.
namespace lockstep::data::detail {

/// Which streams a function has: functions that make datasets have other ones than the nodes of those datasets.
enum class FunctionStream { OfElements, OfDatasets };

/// Makes calls of a user's function reproducible: what they draw from LibTorch's default generators depends only on the
/// seed, the epoch, the node and the number of the element, not on the thread or on earlier calls. The state of the
/// default generators does not change.
class LOCKSTEP_API FunctionRandom {
 public:
  /// For calls outside of an iteration, which look at the first elements.
  FunctionRandom();
  FunctionRandom(uint64_t depth, const Iteration& iteration, FunctionStream stream = FunctionStream::OfElements);

  /// Returns the result of `call` for element number `ordinal`.
  template <class Call>
  decltype(auto) operator()(int64_t ordinal, Call&& call) const {
    const Scope scope(*this, ordinal);
    return std::forward<Call>(call)();
  }

 private:
  class LOCKSTEP_API Scope {
   public:
    Scope(const FunctionRandom& owner, int64_t ordinal);
    ~Scope();

   private:
    const FunctionRandom& owner_;
    lockstep::detail::RunSeed seed_;
    lockstep::detail::ReplicaRandom random_;
  };

  uint64_t seed_ = 0;
  std::shared_ptr<SeedUse> seed_use_;
};

}  // namespace lockstep::data::detail
