#include "lockstep/train/callbacks/chief_files.h"

#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/strategy/access.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::callbacks {

void write_on_chief(const Trainer& trainer, const std::function<void()>& write) {
  std::exception_ptr error;
  if (trainer.is_chief()) {
    try {
      write();
    } catch (...) {
      error = std::current_exception();
    }
  }
  uint8_t failed = error ? 1 : 0;
  if (const auto any_worker = detail::Access::impl(trainer.strategy()).any_worker()) failed = any_worker(failed);
  if (error) std::rethrow_exception(error);
  LOCKSTEP_CHECK_DATA(failed == 0, "[callbacks] the first worker could not write a file; its own error says why");
}

}  // namespace lockstep::callbacks
