#pragma once

#include <memory>
#include <vector>

#include "lockstep/strategy/optimizer/compression.h"
#include "lockstep/strategy/optimizer/exchange/gradient_exchange.h"

namespace lockstep::detail {

class CentralTensor;
class StrategyImpl;

/// Makes the exchange of one local replica of `num_replicas`. The references must outlive it; `central` is empty where
/// each replica stores its own parameters.
std::unique_ptr<GradientExchange> make_exchange(const StrategyImpl& strategy, int replica, int num_replicas,
                                                const ReplicaParameters& parameters,
                                                const std::vector<CentralTensor>& central,
                                                const GradientCompression& compression);

/// Whether gradients are sent to other workers by messages, so that compression has an effect.
bool sends_gradients(const StrategyImpl& strategy, const std::vector<CentralTensor>& central);

}  // namespace lockstep::detail
