#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/data/cardinality.h"
#include "lockstep/data/element.h"
#include "lockstep/data/spec.h"

/// Inside: the graph behind a Dataset. A node never changes and makes any number of iterators, which hold the state.
///
/// To add a transform: a pair of files in transforms/ with a node and its iterator, a `make_...` function declared in
/// transforms.h, and a method of Dataset that calls it. A transform includes this header, never another transform.
namespace lockstep::data {

class Node;
using NodePtr = std::shared_ptr<const Node>;

/// What an iterator must know of the iteration that it is part of.
struct LOCKSTEP_API Iteration {
  /// Which time the dataset is gone through; what is random differs between epochs and is the same for one.
  uint64_t epoch = 0;
  /// Whether batches are made in page-locked memory, from which a GPU can copy by itself.
  bool pin_memory = false;
  /// Where random numbers start that were given no seed: what the workers of a job have agreed on. Nothing: LibTorch's.
  std::optional<uint64_t> seed = std::nullopt;

  /// The iteration number `index` inside this one; the first inside is this one itself.
  Iteration nested(uint64_t index) const;
};

/// Goes through the elements of a node, once. One thread at a time may use it.
class LOCKSTEP_API NodeIterator {
 public:
  virtual ~NodeIterator();

  /// Puts the next element into `element`, or returns false at the end, from then on always. After an exception the
  /// iterator stands behind the element that could not be made.
  virtual bool next(Element& element) = 0;

  /// Passes over up to `count` elements as if `next` had been called, and returns how many there were. Makes the
  /// position of an iterator cheap to restore: functions of `map` are not called and bytes are not read where that can
  /// be known.
  virtual int64_t skip(int64_t count);
};

/// What the rewrites of a graph (sharding, splitting of batches) must know of a node.
enum class Role {
  /// Makes elements from nothing that is a file.
  Source,
  /// Reads the files whose names its input gives.
  Reader,
  /// Makes a dataset from each element of its input (flat_map, interleave).
  Expand,
  /// Takes one input.
  Transform,
  /// Takes one input and may stay last whatever is inserted before the end (prefetch, options).
  Trailing,
  /// Takes several inputs (zip, concatenate).
  Combine,
  /// Changes the order of its input at random.
  Shuffle,
  /// Keeps a part of its input for one worker among several.
  Shard,
  /// What it gives depends on all that came before it, so that no part of the files can be left out (enumerate,
  /// buckets).
  Opaque,
};

class LOCKSTEP_API Node : public std::enable_shared_from_this<Node> {
 public:
  virtual ~Node();

  /// How the node reads in a program: "batch(4)".
  virtual std::string name() const = 0;
  virtual Role role() const = 0;

  const std::vector<NodePtr>& inputs() const { return inputs_; }
  const NodePtr& input() const { return inputs_.front(); }
  /// The same node on other inputs.
  virtual NodePtr with_inputs(std::vector<NodePtr> inputs) const = 0;

  virtual std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const = 0;

  virtual ElementSpec spec() const = 0;
  virtual Cardinality cardinality() const = 0;

  /// The size of the batches that this node gives, as far as the graph shows it, although the last one may be smaller.
  virtual std::optional<int64_t> batch_size() const { return std::nullopt; }

  /// The size that every batch but the last one is certain to have, so that rows can be passed over without being made.
  virtual std::optional<int64_t> uniform_batch_size() const { return std::nullopt; }

  /// Whether it insists on a number of elements. Such a node is dropped where workers get a part of the files.
  virtual bool asserts_cardinality() const { return false; }

  /// Whether going through it once more is free of side effects. False for what a user's generator gives.
  virtual bool is_replayable() const;

  /// Tells nodes of one graph apart for random numbers: the length of the longest way to a source.
  uint64_t depth() const { return depth_; }

 protected:
  explicit Node(std::vector<NodePtr> inputs);

 private:
  std::vector<NodePtr> inputs_;
  uint64_t depth_;
};

/// A node that changes nothing of what is known of its one input, until it overrides it.
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

/// Rebuilds a graph with other inputs: `NODE::with_inputs` of a unary node whose constructor takes (input, options...).
template <class NodeType, class... Args>
NodePtr make_node(Args&&... args) {
  return std::make_shared<NodeType>(std::forward<Args>(args)...);
}

/// The seed of what is random in a node: from the user's seed or LibTorch's, the node's place and the epoch.
LOCKSTEP_API uint64_t random_seed(std::optional<uint64_t> seed, uint64_t depth, const Iteration& iteration);

/// A small fast generator with a state of eight bytes (SplitMix64).
class SmallRandom {
 public:
  explicit SmallRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// Returns a number in [0, bound), each with the same chance (to 2^-64).
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  /// Returns a number in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

}  // namespace detail
}  // namespace lockstep::data
