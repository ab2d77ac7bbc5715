#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/sound_skip.h"

namespace lockstep::data::detail {
namespace {

class ShardIterator final : public NodeIterator {
 public:
  ShardIterator(std::unique_ptr<NodeIterator> input, int64_t num_shards, int64_t index, ShardCheck check)
      : input_(std::move(input)), num_shards_(num_shards), index_(index), gap_(index), check_(check) {}

  bool next(Element& element) override {
    if (ended_) return false;
    const int64_t gap = std::exchange(gap_, num_shards_ - 1);
    const int64_t passed = gap > 0 ? skip_all(gap) : 0;
    if (passed < gap || !input_->next(element)) {
      ended_ = true;
      if (std::exchange(check_, ShardCheck::None) == ShardCheck::NonEmpty && passed > 0) fail_too_few(passed);
      return false;
    }
    if (std::exchange(check_, ShardCheck::None) == ShardCheck::NonEmpty) check_others();
    return true;
  }

  int64_t skip(int64_t count) override {
    if (check_ == ShardCheck::NonEmpty && count > 0) {
      Element first;
      try {
        if (!next(first)) return 0;
      } catch (const std::exception&) {
        if (ended_) throw;  // too few elements
      }
      return 1 + skip(count - 1);
    }
    if (ended_ || count <= 0) return 0;
    const int64_t kept = std::min(count, std::numeric_limits<int64_t>::max() / num_shards_ - 1);
    const int64_t wanted = gap_ + (kept - 1) * num_shards_ + 1;
    const int64_t passed = skip_all(wanted);
    ended_ = passed < wanted;
    const int64_t skipped = passed > gap_ ? (passed - gap_ - 1) / num_shards_ + 1 : 0;
    gap_ = num_shards_ - 1;
    return skipped;
  }

 private:
  /// Skips elements of all shards.
  int64_t skip_all(int64_t count) {
    const bool sound = SkipScope::current() == Skipped::Sound;
    const SkipScope scope(!sound ? Skipped::Unknown : num_shards_ > 1 ? Skipped::SoundInShard : Skipped::Sound);
    return input_->skip(count);
  }

  /// After the first element of this shard: checks that every later shard has an element, too.
  void check_others() {
    const int64_t others = num_shards_ - index_ - 1;
    const int64_t found = others > 0 ? skip_all(others) : 0;
    ended_ = found < others;
    gap_ = index_;
    if (found < others) fail_too_few(index_ + 1 + found);
  }

  /// Every worker throws, not only those without elements: a job in which some workers fail and others end without an
  /// error would deadlock.
  [[noreturn]] void fail_too_few(int64_t found) const {
    LOCKSTEP_THROW(c10::ValueError, "[distribute_dataset] the dataset has fewer files than workers: files=", found,
                   ", workers=", num_shards_,
                   "; write the data to more files, use AutoShardPolicy::Data if there are at least as many "
                   "batches as workers, or AutoShardPolicy::Off");
  }

  std::unique_ptr<NodeIterator> input_;
  int64_t num_shards_;
  int64_t index_;
  /// Elements of other shards that come before the next one of this shard.
  int64_t gap_;
  ShardCheck check_;
  bool ended_ = false;
};

class ShardNode final : public UnaryNode {
 public:
  ShardNode(NodePtr input, int64_t num_shards, int64_t index, ShardCheck check)
      : UnaryNode(std::move(input)), num_shards_(num_shards), index_(index), check_(check) {}

  std::string name() const override {
    return is_hint() ? "shard_hint()" : c10::str("shard(", num_shards_, ", ", index_, ")");
  }
  Role role() const override { return Role::Shard; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<ShardNode>(std::move(inputs[0]), num_shards_, index_, check_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    LOCKSTEP_CHECK_CONTEXT(!is_hint(),
                           "[shard_hint] only distribute_dataset with AutoShardPolicy::Hint replaces the hint; "
                           "set it with with_options, or give the number of shards and the index");
    return std::make_unique<ShardIterator>(input()->iterator(iteration), num_shards_, index_, check_);
  }
  Cardinality cardinality() const override {
    if (is_hint()) return Cardinality::unknown();
    return input()->cardinality().map(
        [&](int64_t size) { return size / num_shards_ + (index_ < size % num_shards_ ? 1 : 0); });
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }

  bool is_hint() const { return num_shards_ == kShardHint; }

 private:
  int64_t num_shards_;
  int64_t index_;
  ShardCheck check_;
};

}  // namespace

bool is_shard_hint(const Node& node) {
  const auto* shard = dynamic_cast<const ShardNode*>(&node);
  return shard != nullptr && shard->is_hint();
}

NodePtr make_shard(NodePtr input, int64_t num_shards, int64_t index, ShardCheck check) {
  if (num_shards != kShardHint || index != kShardHint) {
    LOCKSTEP_CHECK_VALUE(num_shards >= 1, "[shard] there must be at least one shard: num_shards=", num_shards,
                         ", index=", index);
    LOCKSTEP_CHECK_VALUE(index >= 0 && index < num_shards,
                         "[shard] the index must be at least 0 and below the number of shards: num_shards=", num_shards,
                         ", index=", index);
  }
  return make_node<ShardNode>(std::move(input), num_shards, index, check);
}

}  // namespace lockstep::data::detail
