#include "lockstep/base/error.h"
#include "lockstep/train/tensorboard/event_message.h"

namespace lockstep::tensorboard {
namespace {

[[noreturn]] std::string fail_without_protozero() {
  LOCKSTEP_CHECK_IMPLEMENTED(false,
                             "[tensorboard] this build of lockstep has no protozero, which encodes event files: ",
                             "install libprotozero-dev and build again");
  throw std::logic_error("unreachable");
}

}  // namespace

bool has_event_messages() { return false; }

std::string encode_event(double, int64_t, const SummaryValue&) { fail_without_protozero(); }
std::string encode_file_version(double) { fail_without_protozero(); }
std::string encode_session_start(double, int64_t) { fail_without_protozero(); }
int64_t decode_step(std::string_view) {
  fail_without_protozero();
  return 0;
}
std::string encode_scalar(float) { fail_without_protozero(); }
std::string encode_doubles(const at::Tensor&) { fail_without_protozero(); }
std::string encode_strings(const std::vector<std::string>&, bool) { fail_without_protozero(); }
std::string encode_experiment(double, const HyperParameters&, const std::vector<ShownMetric>&) {
  fail_without_protozero();
}
std::string encode_session_start_info(double, const HyperParameters&) { fail_without_protozero(); }
std::string encode_session_end_info(double, SessionStatus) { fail_without_protozero(); }
std::string encode_no_tensor() { fail_without_protozero(); }

}  // namespace lockstep::tensorboard
