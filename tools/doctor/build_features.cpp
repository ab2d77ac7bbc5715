#include "tools/doctor/build_features.h"

namespace lockstep::tools {

std::string openssl_state() { return LOCKSTEP_OPENSSL_STATE; }
std::string curl_state() { return LOCKSTEP_CURL_STATE; }

}  // namespace lockstep::tools
