#pragma once

#include <memory>
#include <string>

#include <gloo/transport/device.h>

namespace lockstep::comm {

/// Returns a TCP device bound to the address. It encrypts where LOCKSTEP_TLS_CERT, LOCKSTEP_TLS_KEY and LOCKSTEP_TLS_CA
/// are set; c10::ValueError where only some are, or where this Gloo cannot.
std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address);

/// Returns "with TLS" or "without TLS".
std::string gloo_encryption();

}  // namespace lockstep::comm
