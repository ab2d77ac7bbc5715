#include "lockstep/xla/lower/value_checks.h"

#include <atomic>

#include <ATen/ATen.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/xla/graph/origin.h"
#include "lockstep/xla/lower/expression.h"
#include "lockstep/xla/tensor/check_flags.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {
namespace {

/// The runs of a device in which values are checked by default, and how many calls outside of runs.
constexpr int64_t kFirstRuns = 10;
constexpr int64_t kFirstCallsOutside = 100;

bool is_among_first(const XlaDevice& device) {
  if (device.run.load(std::memory_order_relaxed) != nullptr) return device.run_number() <= kFirstRuns;
  static std::atomic<int64_t> calls_outside{0};
  return calls_outside.load(std::memory_order_relaxed) < kFirstCallsOutside &&
         calls_outside.fetch_add(1, std::memory_order_relaxed) < kFirstCallsOutside;
}

ValueChecks checks_of_environment() {
  const std::string word = env::text("LOCKSTEP_XLA_CHECKS");
  if (word == "auto") return ValueChecks::FirstRuns;
  return env::flag("LOCKSTEP_XLA_CHECKS") ? ValueChecks::All : ValueChecks::Off;
}

std::atomic<ValueChecks>& value_checks() {
  static std::atomic<ValueChecks> checks{checks_of_environment()};
  return checks;
}

at::Tensor broadcasted(const at::Tensor& operand, const Node& broadcast) {
  std::vector<int64_t> size(broadcast.shape.size(), 1);
  for (size_t i = 0; i < broadcast.attributes.size(); ++i) {
    size[static_cast<size_t>(broadcast.attributes[i])] = operand.size(static_cast<int64_t>(i));
  }
  return operand.reshape(size).expand(broadcast.shape);
}

/// The value on the CPU if it is an argument or a view of one; undefined for values that are yet to be computed.
at::Tensor known_value(const Node& node) {
  if (node.op == Op::Argument) return node.data == nullptr ? at::Tensor() : download(node);
  if (node.op == Op::Number) {
    return is_float(node.dtype) ? at::scalar_tensor(node.number, at::device(at::kCPU).dtype(node.dtype))
                                : at::scalar_tensor(node.integer, at::device(at::kCPU).dtype(node.dtype));
  }
  const bool is_view = node.op == Op::Reshape || node.op == Op::Transpose || node.op == Op::Slice ||
                       node.op == Op::Convert || node.op == Op::Broadcast;
  if (!is_view) return {};
  at::Tensor operand = known_value(*node.operands[0]);
  if (!operand.defined()) return {};
  switch (node.op) {
    case Op::Reshape:
      return operand.reshape(node.shape);
    case Op::Transpose:
      return operand.permute(node.attributes);
    case Op::Convert:
      return operand.to(node.dtype);
    case Op::Slice:
      for (size_t dim = 0; dim < node.shape.size(); ++dim) {
        operand = operand.narrow(static_cast<int64_t>(dim), node.attributes[dim], node.shape[dim]);
      }
      return operand;
    default:
      return broadcasted(operand, node);
  }
}

/// Checks a value by both ways: `failed` makes the failing elements of the graph, `failed_on_cpu` those of a tensor.
template <class Rule, class Failed, class FailedOnCpu>
void check_values(const AtenCall& call, const Value& value, Rule&& rule, Failed&& failed, FailedOnCpu&& failed_on_cpu) {
  const ValueChecks checks = value_checks().load(std::memory_order_relaxed);
  if (value->numel() == 0) return;
  XlaDevice& device = device_at(call.device_index());
  const bool looks_now = is_constant(*value) || checks == ValueChecks::Known ||
                         (checks == ValueChecks::FirstRuns && is_among_first(device));
  if (looks_now) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor known = known_value(*value);
    if (!known.defined()) return;
    const at::Tensor wrong = failed_on_cpu(known);
    LOCKSTEP_CHECK_INDEX(!wrong.any().template item<bool>(), rule(), ": found ",
                         known.masked_select(wrong)[0].template item<int64_t>());
  } else if (checks == ValueChecks::All) {
    const Value wrong = failed(value);
    add_check(device, reduce(Combiner::Or, wrong, all_dims(wrong)), rule());
  }
}

}  // namespace

bool is_constant(const Node& node) {
  if (node.op == Op::Number) return true;
  return (node.op == Op::Convert || node.op == Op::Broadcast || node.op == Op::Reshape) &&
         is_constant(*node.operands[0]);
}

void set_value_checks(ValueChecks checks) { value_checks().store(checks, std::memory_order_relaxed); }

void check_indices(const AtenCall& call, const Value& indices, int64_t low, int64_t high) {
  check_values(
      call, indices,
      [&] { return c10::str("[", traced_function(), "] indices must be at least ", low, " and below ", high); },
      [&](const Value& a) {
        return either(compare(Comparison::LT, a, integer(low, a->dtype)),
                      compare(Comparison::GE, a, integer(high, a->dtype)));
      },
      [&](const at::Tensor& a) { return a.lt(low).logical_or(a.ge(high)); });
}

void check_labels(const AtenCall& call, const Value& labels, int64_t classes, int64_t ignored) {
  check_values(
      call, labels,
      [&] {
        return c10::str("[", traced_function(), "] targets must be at least 0 and below ", classes,
                        ", or ignore_index=", ignored);
      },
      [&](const Value& a) {
        const Value outside = either(compare(Comparison::LT, a, integer(0, a->dtype)),
                                     compare(Comparison::GE, a, integer(classes, a->dtype)));
        return both(outside, compare(Comparison::NE, a, integer(ignored, a->dtype)));
      },
      [&](const at::Tensor& a) { return a.lt(0).logical_or(a.ge(classes)).logical_and(a.ne(ignored)); });
}

void check_divisor(const AtenCall& call, const Value& divisor) {
  if (is_float(divisor->dtype)) return;
  check_values(
      call, divisor, [&] { return c10::str("[", traced_function(), "] integers must not be divided by zero"); },
      [&](const Value& a) { return compare(Comparison::EQ, a, integer(0, a->dtype)); },
      [&](const at::Tensor& a) { return a.eq(0); });
}

}  // namespace lockstep::xla
