#include <algorithm>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/element/private_memory.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/transforms/buffering/cache_store.h"

namespace lockstep::data::detail {
namespace {

constexpr uint64_t kBranchOfCaches = uint64_t{1} << 48;

class MemoryContents final : public CacheContents {
 public:
  MemoryContents(std::vector<Element> elements, std::vector<CacheSeed> seeds)
      : elements_(std::move(elements)), seeds_(std::move(seeds)) {}
  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }
  void read(int64_t index, Element& element) const override {
    element = elements_[static_cast<size_t>(index)];
    own_tensors(element);
  }
  const std::vector<CacheSeed>& seeds() const override { return seeds_; }

 private:
  std::vector<Element> elements_;
  std::vector<CacheSeed> seeds_;
};

class MemoryStore final : public CacheStore, public std::enable_shared_from_this<MemoryStore> {
 public:
  std::shared_ptr<const CacheContents> contents() override {
    const std::lock_guard lock(mutex_);
    return contents_;
  }
  std::unique_ptr<CacheWriter> writer() override { return std::make_unique<Writer>(shared_from_this()); }

 private:
  class Writer final : public CacheWriter {
   public:
    explicit Writer(std::shared_ptr<MemoryStore> store) : store_(std::move(store)) {}
    void add(Element& element) override {
      keep_in_memory(element);
      lend_tensors(element);
      elements_.push_back(element);
      own_tensors(element);
    }
    void complete(std::vector<CacheSeed> seeds) override {
      store_->set(std::make_shared<MemoryContents>(std::move(elements_), std::move(seeds)));
    }

   private:
    std::shared_ptr<MemoryStore> store_;
    std::vector<Element> elements_;
  };

  /// The first complete cache is used.
  void set(std::shared_ptr<const CacheContents> contents) {
    const std::lock_guard lock(mutex_);
    if (!contents_) contents_ = std::move(contents);
  }

  std::mutex mutex_;
  std::shared_ptr<const CacheContents> contents_;
};

/// Reads the cache if it is complete when the first element is requested; otherwise reads the input and fills a cache
/// of its own, which all iterators use once it is complete.
class CacheIterator final : public NodeIterator {
 public:
  CacheIterator(NodePtr input, std::shared_ptr<CacheStore> store, const CacheStores& stores, const Iteration& iteration)
      : node_(std::move(input)), store_(std::move(store)), iteration_(iteration) {
    if (!iteration_.seed) iteration_.seed = process_seed();
    own_seed_ = stores.seed_of(*iteration_.seed);
  }

  bool next(Element& element) override {
    if (!start()) return false;
    if (!contents_) return next_of_input(element);
    if (position_ == contents_->size()) return false;
    contents_->read(position_++, element);
    return true;
  }

  /// Skipped elements are read while the cache is being filled: later epochs need them.
  int64_t skip(int64_t count) override {
    if (count <= 0) return 0;
    if (!input_ && !contents_) return NodeIterator::skip(1) == 1 ? 1 + skip(count - 1) : 0;
    if (!contents_) return NodeIterator::skip(count);
    const int64_t skipped = std::min(count, contents_->size() - position_);
    position_ += skipped;
    return skipped;
  }

 private:
  /// Opens the cache or the input with the first element. What cannot be opened is one error, then the end.
  bool start() {
    if (contents_ || input_) return true;
    if (std::exchange(started_, true)) return false;
    contents_ = store_->contents();
    if (contents_) {
      note(contents_->seeds());
      return true;
    }
    std::unique_ptr<CacheWriter> writer = iteration_.is_silent ? nullptr : store_->writer();
    Iteration of_input = iteration_;
    of_input.seed_use = of_input_;
    input_ = node_->iterator(of_input);
    writer_ = std::move(writer);
    return true;
  }

  bool next_of_input(Element& element) {
    // Removed until the element is stored, so that a cache with a gap is never completed.
    std::unique_ptr<CacheWriter> writer = std::move(writer_);
    const bool found = input_->next(element);
    if (of_input_->num_noted() != num_noted_) note_input();
    if (!writer) return found;
    if (found) {
      writer->add(element);
      writer_ = std::move(writer);
    } else {
      writer->complete(seeds_of_input());
    }
    return found;
  }

  void note(const std::vector<CacheSeed>& seeds) const {
    if (!iteration_.seed_use) return;
    for (const CacheSeed& seed : seeds) iteration_.seed_use->note(seed);
  }
  void note_input() {
    num_noted_ = of_input_->num_noted();
    note(seeds_of_input());
  }
  std::vector<CacheSeed> seeds_of_input() const {
    std::vector<CacheSeed> seeds = of_input_->of_caches();
    if (of_input_->was_used()) seeds.push_back(own_seed_);
    return seeds;
  }

  NodePtr node_;
  std::shared_ptr<CacheStore> store_;
  Iteration iteration_;
  /// What elements that are made from the seed of the iteration depend on.
  CacheSeed own_seed_;
  std::shared_ptr<SeedUse> of_input_ = std::make_shared<SeedUse>();
  uint64_t num_noted_ = 0;
  bool started_ = false;
  std::shared_ptr<const CacheContents> contents_;
  int64_t position_ = 0;
  std::unique_ptr<NodeIterator> input_;
  std::unique_ptr<CacheWriter> writer_;
};

class CacheNode final : public UnaryNode {
 public:
  CacheNode(NodePtr input, std::string file, std::shared_ptr<CacheStores> stores)
      : UnaryNode(std::move(input)), file_(std::move(file)), stores_(std::move(stores)) {
    const std::string pipeline = describe(*this->input());
    if (file_.empty()) {
      store_ = stores_->store(pipeline, [] { return std::make_shared<MemoryStore>(); });
    } else {
      store_ = make_file_cache(file_, pipeline);
    }
  }

  std::string name() const override { return file_.empty() ? "cache()" : c10::str("cache(\"", file_, "\")"); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<CacheNode>(std::move(inputs[0]), file_, stores_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    // Always the first epoch and a branch of its own: the contents do not depend on the epoch, the restart or the place
    // in the graph in which the cache is filled.
    if (!iteration.is_silent) stores_->use();
    Iteration first = iteration;
    first.epoch = first.level = 0;
    first.branch = SmallRandom(kBranchOfCaches + stores_->number()).next();
    return std::make_unique<CacheIterator>(input(), store_, *stores_, first);
  }
  std::optional<int64_t> batch_size() const override { return input()->batch_size(); }
  std::optional<int64_t> uniform_batch_size() const override { return input()->uniform_batch_size(); }
  bool is_replayable() const override { return UnaryNode::is_replayable() || store_->contents() != nullptr; }

 private:
  std::string file_;
  std::shared_ptr<CacheStores> stores_;
  std::shared_ptr<CacheStore> store_;
};

}  // namespace

NodePtr make_cache(NodePtr input, std::string file) {
  auto stores = input->cache_stores([](const Node& node) { return std::make_shared<CacheStores>(node); });
  return make_node<CacheNode>(std::move(input), std::move(file), std::move(stores));
}

}  // namespace lockstep::data::detail
