#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/element/element.h"
#include "lockstep/data/element/spec.h"
#include "lockstep/data/epochs.h"
#include "lockstep/data/seed_use.h"
#include "lockstep/data/small_random.h"

/// Internal: the graph behind a Dataset. A node never changes and makes any number of iterators, which hold the state.
///
/// To add a transform: a file in transforms/ with a node and its iterator, a `make_...` function declared in
/// transforms.h, and a method of Dataset that calls it. A transform includes this header, never another transform.
namespace lockstep::detail {
class HostCopier;
}  // namespace lockstep::detail

namespace lockstep::data {

class Node;
using NodePtr = std::shared_ptr<const Node>;

/// The parameters of one iteration over a dataset.
struct LOCKSTEP_API Iteration {
  /// Random orders differ between epochs and are the same for one epoch.
  uint64_t epoch = 0;
  /// Whether batches are allocated in page-locked memory, from which a GPU copies asynchronously.
  bool pin_memory = false;
  /// Copies large batches on several threads. Null: the thread that makes a batch copies it.
  std::shared_ptr<lockstep::detail::HostCopier> copier = nullptr;
  /// The seed that the workers of a job have agreed on, for transforms without a seed of their own. Nothing:
  /// LibTorch's.
  std::optional<uint64_t> seed = std::nullopt;
  /// Which of the inputs of nodes with several inputs lead here: random numbers differ between branches. 0: the first
  /// ones.
  uint64_t branch = 0;
  /// The number of the input pipeline among those that functions make for workers or replicas. Generators have other
  /// random numbers in each of them; orders and functions of transforms have the same ones, so that pipelines can be
  /// shards of one dataset.
  uint64_t pipeline = 0;
  /// Notes when random numbers are made from `seed`, if it is not null.
  std::shared_ptr<detail::SeedUse> seed_use = nullptr;
  /// Whether elements are only counted or looked at, by a second iterator: errors are neither counted nor logged, and
  /// no cache is filled.
  bool is_silent = false;

  /// How many `of_pass` and `of_dataset` lead here, so that pass 1 of pass 0 and pass 0 of pass 1 differ.
  uint64_t level = 0;

  /// Returns the parameters of pass number `index` of a repeated dataset; the epoch of number 0 is this one.
  Iteration of_pass(uint64_t index) const;
  /// Returns the parameters of the iteration over a dataset that a node of this depth makes from element number
  /// `ordinal` of its input. Its random numbers differ from those of the graph around it.
  Iteration of_dataset(uint64_t ordinal, uint64_t depth) const;
  /// Returns the parameters of the iteration over input number `index` of a node of this depth with several inputs;
  /// those of number 0 are these.
  Iteration of_input(uint64_t index, uint64_t depth) const;
};

/// Iterates once over the elements of a node. One thread at a time may use it.
class LOCKSTEP_API NodeIterator {
 public:
  virtual ~NodeIterator();

  /// Stores the next element in `element`, or returns false at the end and after it. After an exception the iterator
  /// continues behind the element that failed.
  virtual bool next(Element& element) = 0;

  /// Skips up to `count` elements as if `next` had been called, and returns how many there were. It makes positions
  /// cheap to restore: functions of `map` are not called, and bytes are not read where the format allows. An element
  /// whose `next` throws counts as one, and `skip` does not throw for it.
  virtual int64_t skip(int64_t count);
};

namespace detail {
class CacheStores;
}  // namespace detail

/// How the rewrites of a graph (sharding, splitting of batches) treat a node.
enum class Role {
  /// Makes elements, not from files.
  Source,
  /// Reads the files whose names its input gives.
  Reader,
  /// Makes a dataset from each element of its input (flat_map, interleave).
  Expand,
  /// Takes one input.
  Transform,
  /// Takes one input and stays last when a node is appended (prefetch, options).
  Trailing,
  /// Takes several inputs (zip, concatenate).
  Combine,
  /// Changes the order of its input at random.
  Shuffle,
  /// Selects the part of its input for one worker among several.
  Shard,
  /// Its elements depend on all earlier ones, so that no file can be left out (enumerate, buckets).
  Opaque,
};

/// Whether a node's elements are parts of batches that nothing else holds: they share memory with each other only.
enum class BatchDivision {
  /// No, or not known.
  None,
  /// Any numbers of rows.
  Rows,
  /// Each batch gives the same number of parts. All of them are errors where the batch fails.
  Parts,
};

class LOCKSTEP_API Node : public std::enable_shared_from_this<Node> {
 public:
  virtual ~Node();

  /// The call that makes the node: "batch(4)".
  virtual std::string name() const = 0;
  virtual Role role() const = 0;

  const std::vector<NodePtr>& inputs() const { return inputs_; }
  const NodePtr& input() const { return inputs_.front(); }
  /// Returns a copy of the node with other inputs.
  virtual NodePtr with_inputs(std::vector<NodePtr> inputs) const = 0;
  /// Returns a copy of the node with other inputs, or the node itself where they are those that it has.
  NodePtr with_changed_inputs(std::vector<NodePtr> inputs) const;

  virtual std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const = 0;

  virtual ElementSpec spec() const = 0;
  virtual Cardinality cardinality() const = 0;

  /// The size of this node's batches where the graph determines it; the last one may be smaller.
  virtual std::optional<int64_t> batch_size() const { return std::nullopt; }

  /// The size that every batch but the last one is certain to have: rows can then be skipped without making them.
  virtual std::optional<int64_t> uniform_batch_size() const { return std::nullopt; }

  virtual BatchDivision batch_division() const { return BatchDivision::None; }

  /// Whether it checks the number of elements. Such a node is dropped where workers read a part of the files.
  virtual bool asserts_cardinality() const { return false; }

  /// Whether another iteration has no side effects. False for users' generators.
  virtual bool is_replayable() const;

  /// The length of the longest path to a source; it makes the random numbers of nodes of one graph differ.
  uint64_t depth() const { return depth_; }

  /// The counter of epochs of the sources of the graph.
  const std::shared_ptr<Epochs>& epochs() const { return epochs_; }

  /// What caches have stored of this node's elements, for all caches of the node. `make` makes it when it is first
  /// asked for; null where nothing was made yet and `make` is null.
  std::shared_ptr<detail::CacheStores> cache_stores(
      std::shared_ptr<detail::CacheStores> (*make)(const Node& node)) const;

 protected:
  explicit Node(std::vector<NodePtr> inputs);

 private:
  std::vector<NodePtr> inputs_;
  uint64_t depth_;
  std::shared_ptr<Epochs> epochs_;
  mutable std::shared_ptr<detail::CacheStores> cache_stores_;
};

/// A node with one input whose spec and cardinality are those of the input, unless it overrides them.
class LOCKSTEP_API UnaryNode : public Node {
 public:
  Role role() const override { return Role::Transform; }
  ElementSpec spec() const override { return input()->spec(); }
  Cardinality cardinality() const override { return input()->cardinality(); }

 protected:
  explicit UnaryNode(NodePtr input) : Node({std::move(input)}) {}
};

namespace detail {

/// Returns the program that made the graph, innermost first: "range(10).batch(4)".
LOCKSTEP_API std::string describe(const Node& node);

/// Makes a node of the given type.
template <class NodeType, class... Args>
NodePtr make_node(Args&&... args) {
  return std::make_shared<NodeType>(std::forward<Args>(args)...);
}

/// Returns the seed that `torch::manual_seed` has set.
LOCKSTEP_API uint64_t process_seed();

/// Returns the seed of a node's random numbers, from the user's seed, the node's depth and the epoch. Without a seed of
/// the user: from the iteration's or LibTorch's, and from the branch, too. Equal seeds of the user give equal orders in
/// all branches: images and labels stay together.
LOCKSTEP_API uint64_t random_seed(std::optional<uint64_t> seed, uint64_t depth, const Iteration& iteration);
/// The same without a seed of the user, and without a note in `Iteration::seed_use`: for functions that may draw.
LOCKSTEP_API uint64_t function_seed(uint64_t depth, const Iteration& iteration);

}  // namespace detail
}  // namespace lockstep::data
