#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdexcept>

#include "lockstep/comm/job/crypto.h"

namespace lockstep::comm::job {

bool tokens_are_supported() { return true; }

void check_tokens_are_supported() {}

std::string hmac_sha256(std::string_view key, std::string_view content) {
  std::string digest(32, '\0');
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(content.data());
  auto* result = reinterpret_cast<unsigned char*>(digest.data());
  const void* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, content.size(), result, &size);
  if (done == nullptr || size != digest.size()) throw std::runtime_error("OpenSSL cannot compute HMAC-SHA256");
  return digest;
}

}  // namespace lockstep::comm::job
