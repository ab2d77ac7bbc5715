#include "lockstep/strategy/update/update_offer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/backends/shm/shared_memory.h"

namespace lockstep::detail {
namespace {

constexpr uint64_t kNowhere = ~0ull;

struct ParameterNotice {
  uint64_t data = kNowhere;
  uint64_t gradient = kNowhere;
  uint64_t presence = kAbsent;
};

uint64_t place_of(const comm::SharedArena& arena, const char* data) {
  return data == nullptr ? kNowhere : arena.offset_of(data);
}

char* at_place(const comm::SharedMemory& memory, int worker, uint64_t place) {
  return place == kNowhere ? nullptr : memory.at(worker, place);
}

}  // namespace

size_t UpdateOffer::notice_bytes() const {
  return sizeof(uint64_t) + parameters.size() * sizeof(ParameterNotice) + buffers.size() * sizeof(uint64_t);
}

void UpdateOffer::write_notice(char* to, const comm::SharedArena& arena) const {
  auto* word = reinterpret_cast<uint64_t*>(to);
  *word++ = reduced ? 1 : 0;
  auto* notice = reinterpret_cast<ParameterNotice*>(word);
  for (const Parameter& parameter : parameters) {
    *notice++ = {place_of(arena, parameter.data), place_of(arena, parameter.gradient), parameter.presence};
  }
  word = reinterpret_cast<uint64_t*>(notice);
  for (const char* buffer : buffers) *word++ = place_of(arena, buffer);
}

UpdateOffer UpdateOffer::read_notice(const char* from, const comm::SharedMemory& memory, int worker) const {
  UpdateOffer theirs;
  theirs.parameters.reserve(parameters.size());
  const auto* word = reinterpret_cast<const uint64_t*>(from);
  theirs.reduced = *word++ != 0;
  const auto* notice = reinterpret_cast<const ParameterNotice*>(word);
  for (size_t p = 0; p < parameters.size(); ++p, ++notice) {
    theirs.parameters.push_back({at_place(memory, worker, notice->data), at_place(memory, worker, notice->gradient),
                                 static_cast<Presence>(notice->presence)});
  }
  word = reinterpret_cast<const uint64_t*>(notice);
  for (size_t b = 0; b < buffers.size(); ++b) theirs.buffers.push_back(at_place(memory, worker, *word++));
  return theirs;
}

void move_to_arena(const comm::SharedArena& arena, const at::Tensor& tensor) {
  if (tensor.numel() == 0 || arena.contains(tensor.data_ptr())) return;
  const at::NoGradGuard no_grad;
  const comm::SharedAllocation shared(true);
  const at::Tensor moved = at::empty_like(tensor, tensor.options().requires_grad(false));
  moved.copy_(tensor);
  LOCKSTEP_CHECK_COLLECTIVE(arena.contains(moved.data_ptr()),
                            "[optimizer] shared memory is full: bytes=", moved.nbytes());
  tensor.set_data(moved);
}

}  // namespace lockstep::detail
