#include "lockstep/comm/job/crypto.h"

#include <cerrno>
#include <sys/random.h>
#include <system_error>

namespace lockstep::comm::job {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t filled = 0; filled < count;) {
    const ssize_t got = getrandom(bytes.data() + filled, count - filled, 0);
    if (got > 0) filled += static_cast<size_t>(got);
    if (got < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "getting random numbers");
  }
  return bytes;
}

bool equal_in_constant_time(std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (left[i] ^ right[i]));
  }
  return difference == 0;
}

}  // namespace lockstep::comm::job
