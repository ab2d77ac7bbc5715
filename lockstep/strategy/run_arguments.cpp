#include "lockstep/strategy/run_arguments.h"

#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/device/replica_threads.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {

void refuse_whole_batch(const StrategyImpl& strategy) {
  LOCKSTEP_CHECK_VALUE(strategy.num_replicas_in_sync() == 1,
                       "[run] a batch of torch::data is not divided, so each of the ", strategy.num_replicas_in_sync(),
                       " replicas would compute all of it; iterate over strategy.distribute_dataset(loader) instead of "
                       "the loader, or pass batch.data and batch.target if all replicas need all rows");
}

void explain_empty_batch(const StrategyImpl& strategy, const EmptyArguments& empty) {
  const auto& failure = last_replica_failure();
  if (strategy.num_replicas_in_sync() == 1 || !failure || failure->exception != std::current_exception()) return;
  const auto text_of = [&](size_t replica) {
    return c10::str("replica ", replica, " had a batch of no rows (sizes ", empty[replica].sizes(),
                    "), because the last global batch has fewer rows than there are replicas; let the step accept it "
                    "(x.flatten(1) for x.view({x.size(0), -1}), and the same collectives on all replicas), or set "
                    "InputOptions::empty: distribute_dataset(dataset, {.empty = EmptyBatch::Repeat}) or "
                    "EmptyBatch::Drop");
  };
  const auto own = static_cast<size_t>(failure->replica);
  try {
    throw;
  } catch (CollectiveError& error) {
    // A replica that has no rows may have left out the collective in which others failed.
    for (size_t replica = 0; replica < empty.size(); ++replica) {
      if (empty[replica].defined()) error.add_context(text_of(replica));
    }
  } catch (c10::Error& error) {
    if (empty.at(own).defined()) error.add_context(text_of(own));
  } catch (...) {
    if (empty.at(own).defined()) {
      LOCKSTEP_LOG(Warn) << "[run] " << text_of(own);
    }
  }
}

}  // namespace lockstep::detail
