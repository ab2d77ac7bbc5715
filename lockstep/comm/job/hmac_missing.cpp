#include "lockstep/base/error.h"
#include "lockstep/comm/job/crypto.h"

namespace lockstep::comm::job {

bool tokens_are_supported() { return false; }

void check_tokens_are_supported() {
  LOCKSTEP_CHECK_IMPLEMENTED(false, "[join_job] a job with a token needs OpenSSL, which lockstep was built without; ",
                             "install libssl-dev and build again, or leave the token empty on a network of your own");
}

std::string hmac_sha256(std::string_view, std::string_view) {
  check_tokens_are_supported();
  return {};
}

}  // namespace lockstep::comm::job
