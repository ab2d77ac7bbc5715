#include "lockstep/comm/engines/gloo/device.h"

#include <gloo/transport/tcp/device.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::comm {

std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address) {
  for (const auto* variable : {"LOCKSTEP_TLS_CERT", "LOCKSTEP_TLS_KEY", "LOCKSTEP_TLS_CA"}) {
    LOCKSTEP_CHECK_VALUE(!env::given(variable), "[gloo] encryption needs a Gloo that was built with it: ", variable,
                         "=", env::text(variable), "; build Gloo with USE_TCP_OPENSSL_LINK, or unset the variable");
  }
  gloo::transport::tcp::attr where;
  where.hostname = address;
  return gloo::transport::tcp::CreateDevice(where);
}

std::string gloo_encryption() { return "without TLS"; }

}  // namespace lockstep::comm
