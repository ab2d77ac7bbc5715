#include "lockstep/xla/engine/padding.h"

#include <bit>
#include <map>
#include <memory>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/xla/engine/launch.h"
#include "lockstep/xla/engine/run_settings.h"
#include "lockstep/xla/graph/pad_trace.h"

namespace lockstep::xla {
namespace {

/// The operations of a step, and the devices that execute them.
using StepIdentity = std::vector<uint64_t>;

/// The most steps that are known: a process that traces ever new ones must not grow.
constexpr size_t kMostKnownSteps = 1024;

/// What is known of a step from earlier runs.
struct KnownStep {
  std::unique_ptr<ReferenceTrace> reference;
  /// Why it is not padded; empty if it can be.
  std::string refusal;
};

struct KnownSteps {
  std::mutex mutex;
  std::map<StepIdentity, KnownStep> steps;
};

KnownSteps& known_steps() {
  static auto& known = *new KnownSteps;
  return known;
}

StepIdentity identity_of(const std::vector<PendingWork>& works) {
  StepIdentity identity{works[0].trace().skeleton, works[0].trace().nodes.size(), works[0].trace().numbers.size()};
  for (const PendingWork& work : works) identity.push_back(static_cast<uint64_t>(work.device().index()));
  return identity;
}

bool are_alike(const std::vector<PendingWork>& works) {
  for (const PendingWork& work : works) {
    if (work.empty() || work.device().settings == nullptr || work.device().num_partitions() > 1) return false;
    const Trace& trace = work.trace();
    const Trace& first = works[0].trace();
    if (trace.skeleton != first.skeleton || trace.nodes.size() != first.nodes.size()) return false;
    for (const Node* argument : trace.arguments) {
      if (argument->numel() == 0) return false;
    }
  }
  return true;
}

/// How the sizes of arguments differ from the reference.
struct SizeDifference {
  bool any = false;
  bool any_larger = false;
  bool any_smaller = false;
  std::string first;
};

void compare_arguments(const Trace& trace, const ReferenceTrace& reference, SizeDifference& difference) {
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    const Node& argument = *trace.arguments[i];
    const Shape& before = reference.shapes[argument.index];
    for (size_t dim = 0; dim < before.size(); ++dim) {
      if (argument.shape[dim] == before[dim]) continue;
      difference.any = true;
      (argument.shape[dim] > before[dim] ? difference.any_larger : difference.any_smaller) = true;
      if (!difference.first.empty()) continue;
      difference.first =
          c10::str("argument ", i, " had the size ", Ints(before), " and now has ", Ints(argument.shape));
    }
  }
}

bool have_equal_sizes(const std::vector<PendingWork>& works) {
  for (const PendingWork& work : works) {
    if (work.trace().key != works[0].trace().key) return false;
  }
  return true;
}

/// The padded sizes of each replica's arguments: equal for all replicas, so that they run one program.
std::vector<std::vector<PaddedSize>> padded_sizes(const std::vector<PendingWork>& works,
                                                  const ReferenceTrace& reference, bool to_powers_of_two) {
  std::vector<std::vector<PaddedSize>> sizes(works.size());
  const Trace& first = works[0].trace();
  for (size_t i = 0; i < first.arguments.size(); ++i) {
    for (size_t dim = 0; dim < first.arguments[i]->shape.size(); ++dim) {
      if (!reference.is_changing(*first.arguments[i], dim)) continue;
      const int64_t before = reference.shapes[first.arguments[i]->index][dim];
      int64_t largest = 1;
      for (const PendingWork& work : works) largest = std::max(largest, work.trace().arguments[i]->shape[dim]);
      const int64_t padded =
          to_powers_of_two ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(largest))) : before;
      for (size_t replica = 0; replica < works.size(); ++replica) {
        sizes[replica].push_back({before, works[replica].trace().arguments[i]->shape[dim], padded});
      }
    }
  }
  return sizes;
}

/// Pads the traces of all replicas; nothing if one cannot be padded, or if they do not become one program.
std::vector<PaddedTrace> pad_all(const std::vector<PendingWork>& works, KnownStep& step, bool to_powers_of_two) {
  for (const PendingWork& work : works) step.reference->compare(work.trace());
  const auto sizes = padded_sizes(works, *step.reference, to_powers_of_two);
  std::vector<PaddedTrace> padded;
  for (size_t replica = 0; replica < works.size(); ++replica) {
    auto one = pad_trace(works[replica].trace(), *step.reference, sizes[replica], step.refusal);
    if (one && replica > 0 && one->trace.key != padded[0].trace.key) {
      step.refusal = "replicas combine rows differently";
    }
    if (!step.refusal.empty()) {
      LOCKSTEP_LOG(Info) << "a step is compiled for each size of its arguments and not padded: " << step.refusal;
      return {};
    }
    padded.push_back(*std::move(one));
  }
  return padded;
}

/// Decides whether the step is padded, under the lock.
std::vector<PaddedTrace> plan(const std::vector<PendingWork>& works, const std::vector<XlaDevice*>& devices,
                              const RunSettings& settings) {
  KnownSteps& known = known_steps();
  const std::lock_guard<std::mutex> lock(known.mutex);
  StepIdentity identity = identity_of(works);
  if (known.steps.size() >= kMostKnownSteps && known.steps.count(identity) == 0) known.steps.clear();
  KnownStep& step = known.steps[std::move(identity)];
  const bool equal_sizes = have_equal_sizes(works);
  if (!step.reference) {
    if (equal_sizes) step.reference = std::make_unique<ReferenceTrace>(works[0].trace());
    return {};
  }
  SizeDifference difference;
  for (const PendingWork& work : works) compare_arguments(work.trace(), *step.reference, difference);
  if (!difference.any) return {};
  const bool may_pad = settings.pads_rows || settings.pads_to_powers_of_two;
  LOCKSTEP_CHECK_VALUE(may_pad, "[run] with enable_dynamic_batch_size=false the sizes of arguments must not change: ",
                       difference.first, "; drop the remainder of the dataset, or allow other sizes");
  if (!step.refusal.empty()) return {};
  if (equal_sizes && has_program(works[0].trace(), devices)) return {};
  if (difference.any_larger && !settings.pads_to_powers_of_two) {
    if (equal_sizes && !difference.any_smaller) step.reference = std::make_unique<ReferenceTrace>(works[0].trace());
    return {};
  }
  return pad_all(works, step, settings.pads_to_powers_of_two);
}

}  // namespace

bool is_known_at_other_sizes(const std::vector<PendingWork>& works) {
  if (!are_alike(works)) return false;
  KnownSteps& known = known_steps();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto step = known.steps.find(identity_of(works));
  return step != known.steps.end() && step->second.reference && step->second.refusal.empty();
}

bool execute_padded(std::vector<PendingWork>& works) {
  if (!are_alike(works)) return false;
  std::vector<XlaDevice*> devices;
  std::vector<Trace*> traces;
  for (PendingWork& work : works) {
    devices.push_back(&work.device());
    traces.push_back(&work.trace());
  }
  std::vector<PaddedTrace> padded = plan(works, devices, *works[0].device().settings);
  if (padded.empty()) return false;
  launch_padded(traces, padded, devices);
  for (PendingWork& work : works) work.executed();
  return true;
}

}  // namespace lockstep::xla
