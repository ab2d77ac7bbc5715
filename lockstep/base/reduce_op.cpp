#include "lockstep/base/reduce_op.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {
constexpr std::array<std::string_view, 5> kNames{"SUM", "MEAN", "MIN", "MAX", "PRODUCT"};
}  // namespace

ReduceOp::ReduceOp(std::string_view name) : kind_(Sum) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto* found = std::find(kNames.begin(), kNames.end(), upper);
  LOCKSTEP_CHECK_VALUE(found != kNames.end(), "[ReduceOp] the name must be SUM, MEAN, MIN, MAX or PRODUCT: name=\"",
                       name, "\"");
  kind_ = static_cast<Kind>(found - kNames.begin());
}

std::string_view ReduceOp::name() const { return kNames[kind_]; }

std::ostream& operator<<(std::ostream& out, ReduceOp op) { return out << op.name(); }

}  // namespace lockstep
