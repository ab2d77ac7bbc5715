#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/tls/device.h>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/engines/gloo/device.h"

namespace lockstep::comm {

std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address) {
  gloo::transport::tcp::attr where;
  where.hostname = address;
  const auto certificate = env::text("LOCKSTEP_TLS_CERT");
  const auto key = env::text("LOCKSTEP_TLS_KEY");
  const auto authority = env::text("LOCKSTEP_TLS_CA");
  if (certificate.empty() && key.empty() && authority.empty()) return gloo::transport::tcp::CreateDevice(where);
  LOCKSTEP_CHECK_VALUE(!certificate.empty() && !key.empty() && !authority.empty(),
                       "[gloo] encryption needs all of certificate, key and authority: LOCKSTEP_TLS_CERT=\"",
                       certificate, "\", LOCKSTEP_TLS_KEY=\"", key, "\", LOCKSTEP_TLS_CA=\"", authority, "\"");
  return gloo::transport::tcp::tls::CreateDevice(where, key, certificate, authority, "");
}

std::string gloo_encryption() { return "with TLS"; }

}  // namespace lockstep::comm
