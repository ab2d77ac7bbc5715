#include "lockstep/strategy/optimizer/compression.h"

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct PrintCompression {
  std::ostream& out;

  void operator()(const compression::None&) const { out << "None"; }
  void operator()(const compression::Float16&) const { out << "Float16"; }
  void operator()(const compression::BFloat16&) const { out << "BFloat16"; }
  void operator()(const compression::PowerSGD& options) const {
    out << "PowerSGD(rank=" << options.rank << ", start_step=" << options.start_step
        << ", error_feedback=" << (options.error_feedback ? "true" : "false") << ", seed=" << options.seed << ")";
  }
  void operator()(const compression::TopK& options) const {
    out << "TopK(fraction=" << options.fraction << ", error_feedback=" << (options.error_feedback ? "true" : "false")
        << ")";
  }
};

}  // namespace

std::ostream& compression::operator<<(std::ostream& out, const GradientCompression& printed) {
  std::visit(PrintCompression{out}, printed);
  return out;
}

namespace detail {

void validate(const GradientCompression& compression) {
  if (const auto* power = std::get_if<compression::PowerSGD>(&compression)) {
    LOCKSTEP_CHECK_VALUE(power->rank >= 1, "[compression] PowerSGD needs a rank of at least 1: rank=", power->rank);
    LOCKSTEP_CHECK_VALUE(power->start_step >= 0,
                         "[compression] PowerSGD starts after a number of steps: start_step=", power->start_step);
  }
  if (const auto* top = std::get_if<compression::TopK>(&compression)) {
    LOCKSTEP_CHECK_VALUE(top->fraction > 0 && top->fraction <= 1,
                         "[compression] TopK sends a fraction in (0, 1]: fraction=", top->fraction);
  }
}

}  // namespace detail

}  // namespace lockstep
