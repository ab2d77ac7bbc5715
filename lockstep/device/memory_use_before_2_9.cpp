#include "lockstep/device/memory_use.h"

namespace lockstep::detail {

std::optional<int64_t> take_peak_bytes(const c10::Device& /*device*/) { return std::nullopt; }

}  // namespace lockstep::detail
