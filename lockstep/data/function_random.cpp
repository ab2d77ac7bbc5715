#include "lockstep/data/function_random.h"

namespace lockstep::data::detail {
namespace {

/// Deeper than any graph.
constexpr uint64_t kDepthOfDatasetFunctions = uint64_t{1} << 32;

}  // namespace

FunctionRandom::FunctionRandom() { lockstep::detail::install_replica_random(); }

FunctionRandom::FunctionRandom(uint64_t depth, const Iteration& iteration, FunctionStream stream)
    : seed_(function_seed(stream == FunctionStream::OfDatasets ? depth + kDepthOfDatasetFunctions : depth, iteration)),
      seed_use_(iteration.seed_use) {
  lockstep::detail::install_replica_random();
}

FunctionRandom::Scope::Scope(const FunctionRandom& owner, int64_t ordinal)
    : owner_(owner), seed_(SmallRandom(owner.seed_ + static_cast<uint64_t>(ordinal)).next()), random_(seed_, 0) {}

FunctionRandom::Scope::~Scope() {
  if (random_.used_seed() && owner_.seed_use_) owner_.seed_use_->note();
}

}  // namespace lockstep::data::detail
