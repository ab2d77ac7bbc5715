#include "lockstep/data/transforms/batching/row_stream.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/transforms/batching/rows.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {

RowStream::RowStream(NodePtr input, const Iteration& iteration, const char* operation, RowMemory memory)
    : node_(std::move(input)),
      iteration_(iteration),
      input_(node_->iterator(iteration)),
      operation_(operation),
      memory_(memory),
      may_fail_(detail::may_fail(*node_)) {
  if (node_->is_replayable()) uniform_size_ = node_->uniform_batch_size();
}

bool RowStream::find() {
  while (start_ == rows_) {
    start_ = rows_ = 0;
    if (!read(batch_)) return false;
    ++num_read_;
    rows_ = num_rows(batch_, operation_);
  }
  return true;
}

bool RowStream::read(Element& batch) {
  // Until the call has returned: after an exception, batches cannot be counted any more.
  const std::optional<int64_t> uniform_size = std::exchange(uniform_size_, std::nullopt);
  const bool found = input_->next(batch);
  if (found && memory_ == RowMemory::Own) own_tensors(batch, iteration_.pin_memory, iteration_.copier.get());
  uniform_size_ = uniform_size;
  if (found) ++position_;
  return found;
}

int64_t RowStream::skip(int64_t count) {
  int64_t skipped = 0;
  while (skipped < count) {
    if (start_ == rows_) skipped += skip_batches(count - skipped);
    try {
      if (!find()) break;
    } catch (const std::exception&) {  // counts as one row, as in `next` of unbatch
      ++skipped;
      continue;
    }
    const int64_t passed = std::min(count - skipped, left());
    take(passed);
    skipped += passed;
  }
  return skipped;
}

/// Skips whole batches, but never the one with the last requested row: the size of the last batch of the input is not
/// known. Where the input ends before that batch, the iteration restarts to read the last batch.
int64_t RowStream::skip_batches(int64_t count) {
  if (may_fail_ && SkipScope::current() != Skipped::Sound) return 0;
  if (!uniform_size_ || count <= *uniform_size_) return 0;
  const int64_t batches = (count - 1) / *uniform_size_;
  int64_t passed = input_->skip(batches);
  if (passed == 0) return 0;
  position_ += passed;
  Element next;
  if (passed == batches && read(next)) {
    batch_ = std::move(next);
    ++num_read_;
    start_ = 0;
    rows_ = num_rows(batch_, operation_);
  } else {
    --passed;
    --position_;
    input_ = node_->iterator(iteration_);
    input_->skip(position_);
  }
  return passed * *uniform_size_;
}

}  // namespace lockstep::data::detail
