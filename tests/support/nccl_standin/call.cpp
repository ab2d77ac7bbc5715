#include "tests/support/nccl_standin/call.h"

#include <cstdlib>
#include <utility>

#include "tests/support/nccl_standin/sums.h"

namespace nccl_standin {
namespace {

long number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

}  // namespace

size_t Call::bytes() const { return count * size_of(dtype); }

uint64_t Call::signature() const {
  uint64_t hash = static_cast<uint64_t>(kind) + 1;
  for (const uint64_t part : {static_cast<uint64_t>(count), static_cast<uint64_t>(dtype), static_cast<uint64_t>(op),
                              static_cast<uint64_t>(peer)}) {
    hash = hash * 1000003 + part;
  }
  return hash;
}

Faults::Faults()
    : error_at(number("NCCL_STANDIN_ERROR_AT")),
      hang_at(number("NCCL_STANDIN_HANG_AT")),
      delay_at(number("NCCL_STANDIN_DELAY_AT")),
      delay(number("NCCL_STANDIN_DELAY_MS")),
      refuses_shared_cards(number("NCCL_STANDIN_REFUSE_SHARED_CARDS") != 0) {
  if (std::getenv("NCCL_STANDIN_RANK") != nullptr) rank = static_cast<int>(number("NCCL_STANDIN_RANK"));
  if (const char* text = std::getenv("NCCL_STANDIN_WIRE_GBPS")) wire = std::atof(text) * 1e9;
}

void Faults::mark(std::vector<Call>& calls, int of_rank) {
  bool any_message = false;
  for (Call& call : calls) {
    if (call.is_message() && std::exchange(any_message, true)) continue;
    ++calls_;
    if (rank >= 0 && rank != of_rank) continue;
    if (calls_ == error_at) call.fault = Fault::Error;
    if (calls_ == hang_at) call.fault = Fault::Hang;
    if (calls_ == delay_at) call.fault = Fault::Delay;
  }
}

std::chrono::nanoseconds Faults::time_of(Fault fault) const {
  if (fault == Fault::None) return std::chrono::nanoseconds(0);
  return fault == Fault::Delay ? delay : std::chrono::nanoseconds(-1);
}

std::chrono::nanoseconds Faults::time_on_wire(size_t bytes) const {
  if (wire <= 0) return std::chrono::nanoseconds(0);
  return std::chrono::nanoseconds(static_cast<long long>(static_cast<double>(bytes) / wire * 1e9));
}

}  // namespace nccl_standin
