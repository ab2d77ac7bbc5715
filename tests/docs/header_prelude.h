#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/data/transforms/base.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/schedulers/step_lr.h>

#include "lockstep/base/log.h"
#include "lockstep/cluster/environment.h"
#include "lockstep/comm/group.h"
#include "lockstep/data/formats/archive/tar.h"
#include "lockstep/train/tensorboard/summary_writer.h"
#include "tests/docs/prelude.h"

// Bodies of functions are left out.
#pragma GCC diagnostic ignored "-Wunused-parameter"

/// What blocks of headers may use without saying so: what a training has.
namespace lockstep::tests {

struct HeaderBlock : Docs {
  torch::Tensor x = images, y = labels;
  std::vector<std::string> files = {"a.tfrecord"};
};

struct TrainerBlock : Trainer {
  using Trainer::Trainer;
  Batch batch;
};

}  // namespace lockstep::tests
