#include "lockstep/xla/engine/recompilation.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/xla/counters.h"

namespace lockstep::xla {
namespace {

/// The first recompilation that is a warning; after it, every power of two.
constexpr int kWorthAWarning = 3;

/// The most steps that are known.
constexpr size_t kMostKnown = 4096;

/// The program of a step with branches that is a warning, how many runs after the last one it is compiled, and the most
/// such steps that are known.
constexpr int kManyPrograms = 8;
constexpr uint64_t kMostRunsBetween = 2;
constexpr size_t kMostSimilar = 64;

/// How many functions two runs have in common at their beginning, and at their end.
struct Common {
  size_t first = 0;
  size_t last = 0;
};

Common common_functions(const std::vector<const char*>& a, const std::vector<const char*>& b) {
  const size_t shorter = std::min(a.size(), b.size());
  Common common;
  while (common.first < shorter && a[common.first] == b[common.first]) ++common.first;
  while (common.first + common.last < shorter && a[a.size() - 1 - common.last] == b[b.size() - 1 - common.last]) {
    ++common.last;
  }
  return common;
}

const char* function_at(const std::vector<const char*>& functions, size_t i) {
  return i < functions.size() ? functions[i] : "nothing";
}

std::vector<Shape> argument_shapes(const Trace& trace) {
  std::vector<Shape> shapes;
  for (const Node* argument : trace.arguments) shapes.push_back(argument->shape);
  return shapes;
}

/// One word for the sizes of each node.
std::vector<uint64_t> node_sizes(const Trace& trace) {
  std::vector<uint64_t> words;
  words.reserve(trace.nodes.size());
  for (const Node* node : trace.nodes) {
    uint64_t hash = 1469598103934665603u;
    for (const int64_t size : node->shape) hash = (hash ^ static_cast<uint64_t>(size)) * 1099511628211ULL;
    for (size_t i = 0; i < num_size_attributes(*node); ++i) {
      hash = (hash ^ static_cast<uint64_t>(node->attributes[i])) * 1099511628211ULL;
    }
    words.push_back(hash);
  }
  return words;
}

uint64_t identity(uint64_t hash, at::ArrayRef<XlaDevice*> devices) {
  for (const XlaDevice* device : devices) hash = (hash ^ static_cast<uint64_t>(device->index() + 1)) * 1099511628211ULL;
  return hash;
}

}  // namespace

void Recompilations::report(Known& known, const std::string& reason) {
  ++known.times;
  count([](Counters& all) { ++all.recompiles; });
  const bool is_power = (known.times & (known.times - 1)) == 0;
  if (known.times == kWorthAWarning || (known.times > kWorthAWarning && is_power)) {
    LOCKSTEP_LOG(Warn) << "one step has been compiled " << known.times + 1 << " times: " << reason
                       << "; batches of one size (drop_remainder) are compiled once";
  } else {
    LOCKSTEP_LOG(Info) << "compiling a step again: " << reason;
  }
}

void Recompilations::number_changed(const Trace& trace, const Node& number) {
  report(known_[trace.skeleton ^ 1],
         c10::str("the number in ", number.origin, " has changed to ",
                  is_float(number.dtype) ? number.number : double(number.integer), " and is an argument from now on"));
}

void Recompilations::sizes_changed(const Trace& trace, at::ArrayRef<XlaDevice*> devices) {
  if (known_.size() >= kMostKnown) known_.clear();
  const auto [found, is_new] = known_.try_emplace(identity(trace.skeleton, devices));
  if (is_new) operations_changed(devices);
  Known& known = found->second;
  const std::vector<Shape> shapes = argument_shapes(trace);
  for (size_t i = 0; i < std::min(shapes.size(), known.arguments.size()); ++i) {
    if (shapes[i] == known.arguments[i]) continue;
    report(known, c10::str("argument ", i, " had the size ", at::IntArrayRef(known.arguments[i]), " and now has ",
                           at::IntArrayRef(shapes[i])));
    break;
  }
  const bool is_reported = known.arguments.size() == shapes.size() && known.arguments != shapes;
  std::vector<uint64_t> sizes = node_sizes(trace);
  for (size_t i = 0; !is_reported && i < std::min(sizes.size(), known.node_sizes.size()); ++i) {
    if (sizes[i] == known.node_sizes[i]) continue;
    const Node& node = *trace.nodes[i];
    report(known, c10::str("a size in ", node.origin, " has changed, which makes ", describe(node)));
    break;
  }
  known.node_sizes = std::move(sizes);
  known.arguments = shapes;
}

/// Counts a run that was compiled as a new program of a step; from function `first_other` on it differs from the last.
void Recompilations::count_run(Similar& step, uint64_t run, const std::vector<const char*>& functions,
                               size_t first_other) {
  if (run == step.run) return;
  step.num_runs = run - step.run <= kMostRunsBetween ? step.num_runs + 1 : 1;
  step.run = run;
  if (step.num_runs != kManyPrograms || std::exchange(step.is_reported, true)) return;
  LOCKSTEP_LOG(Warn) << "similar runs have been compiled as " << step.num_runs
                     << " different programs: in the last one call " << first_other << " is "
                     << function_at(functions, first_other) << ", and was " << function_at(step.functions, first_other)
                     << "; each branch and each length of a loop on the host is a program: use torch::where, or "
                        "loops of one length";
}

void Recompilations::operations_changed(at::ArrayRef<XlaDevice*> devices) {
  const std::vector<const char*>& functions = devices[0]->functions();
  if (devices[0]->run.load() == nullptr || functions.empty()) return;
  const uint64_t where = identity(0, devices);
  for (auto step = similar_.begin(); step != similar_.end(); ++step) {
    if (step->devices != where) continue;
    const Common common = common_functions(functions, step->functions);
    if (2 * (common.first + common.last) <= std::max(functions.size(), step->functions.size())) continue;
    if (functions == step->functions) return;
    count_run(*step, devices[0]->run_number(), functions, common.first);
    step->functions = functions;
    similar_.splice(similar_.begin(), similar_, step);
    return;
  }
  similar_.push_front({where, functions, devices[0]->run_number()});
  if (similar_.size() > kMostSimilar) similar_.pop_back();
}

}  // namespace lockstep::xla
