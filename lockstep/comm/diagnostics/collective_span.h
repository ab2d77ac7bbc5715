#pragma once

#include <optional>

#include "lockstep/base/trace/trace.h"
#include "lockstep/comm/collective_call.h"

namespace lockstep::comm {

/// The span of a collective, from the call until it ends.
class CollectiveSpan {
 public:
  explicit CollectiveSpan(const CollectiveCall& call) {
    if (!trace::is_on()) return;
    uint64_t bytes = 0;
    int dtype = -1;
    for (const at::Tensor& tensor : call.given()) {
      if (!tensor.defined()) continue;
      if (dtype < 0) dtype = static_cast<int>(tensor.scalar_type());
      if (tensor.layout() == at::kStrided) bytes += tensor.nbytes();
    }
    span_.emplace(trace::Phase::Communication, call.operation, bytes);
    const bool reduces = call.operation.find("reduce") != std::string_view::npos;
    span_->describe(reduces ? ReduceOp(call.reduce_op).name() : std::string_view(), dtype);
  }

 private:
  std::optional<trace::Span> span_;
};

}  // namespace lockstep::comm
