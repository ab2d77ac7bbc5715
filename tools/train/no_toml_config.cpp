#include "lockstep/base/error.h"
#include "tools/train/settings.h"

namespace lockstep::tools {

Json read_toml(const std::string& path) {
  LOCKSTEP_THROW(c10::NotImplementedError, "[train] TOML files need toml++, without which lockstep was built: file=\"",
                 path, "\"; write JSON, or install libtomlplusplus-dev and build again");
}

}  // namespace lockstep::tools
