#pragma once

#include <torch/nn/module.h>

/// Internal: what the modules of all replicas must have in common.
namespace lockstep::detail {

class StrategyImpl;

/// Throws, naming a parameter or buffer, if two modules have other names, shapes or dtypes, or if two names belong to
/// one tensor in only one of them. `other` is the module of the local replica `replica`.
void check_alike(const torch::nn::Module& first, const torch::nn::Module& other, int replica);

/// Collective over the workers: throws, naming a parameter or buffer, if this worker's module has another name, shape
/// or dtype than the first worker's.
void check_alike_on_workers(const StrategyImpl& strategy, const torch::nn::Module& module);

/// Throws if a module writes parameters when it computes, which would make replicas different.
void check_only_reads_parameters(const StrategyImpl& strategy, const torch::nn::Module& module);

}  // namespace lockstep::detail
