#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/SmallVector.h>

#include "lockstep/api.h"
#include "lockstep/data/element/leaf.h"

namespace lockstep::data {

/// The part of an element's structure that its type does not determine: the lengths of its vectors, whether its
/// optionals are set (1 or 0), and the keys of its maps, depth first.
struct Layout {
  std::vector<int64_t> sizes;
  std::vector<std::string> keys;

  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Internal: a type-erased element of a dataset: its leaves, depth first. `Codec<T>` (codec.h) converts it from and to
/// a T.
struct Element {
  c10::SmallVector<Leaf, 2> leaves;
  /// Null for types whose structure is fixed.
  std::shared_ptr<const Layout> layout;

  /// Makes it empty without freeing memory.
  void clear() {
    leaves.clear();
    layout.reset();
  }
};

namespace detail {

/// Appends leaves, lengths and keys to an element, depth first.
class ElementWriter {
 public:
  explicit ElementWriter(Element& element) : element_(element) { element.clear(); }
  void leaf(Leaf leaf) { element_.leaves.push_back(std::move(leaf)); }
  void size(size_t size) { layout().sizes.push_back(static_cast<int64_t>(size)); }
  void key(std::string key) { layout().keys.push_back(std::move(key)); }

 private:
  Layout& layout() {
    if (!layout_) {
      auto layout = std::make_shared<Layout>();
      layout_ = layout.get();
      element_.layout = std::move(layout);
    }
    return *layout_;
  }

  Element& element_;
  Layout* layout_ = nullptr;
};

[[noreturn]] LOCKSTEP_API void fail_structure(const Element& element);

/// Returns the leaves, lengths and keys of an element in the same order. Throws TypeError where there are fewer.
class ElementReader {
 public:
  explicit ElementReader(Element& element) : element_(element) {}
  Leaf& leaf() {
    if (next_leaf_ >= element_.leaves.size()) fail_structure(element_);
    return element_.leaves[next_leaf_++];
  }
  int64_t size() {
    if (!element_.layout || next_size_ >= element_.layout->sizes.size()) fail_structure(element_);
    return element_.layout->sizes[next_size_++];
  }
  const std::string& key() {
    if (!element_.layout || next_key_ >= element_.layout->keys.size()) fail_structure(element_);
    return element_.layout->keys[next_key_++];
  }
  void finish() const {
    if (next_leaf_ != element_.leaves.size()) fail_structure(element_);
  }

 private:
  Element& element_;
  size_t next_leaf_ = 0;
  size_t next_size_ = 0;
  size_t next_key_ = 0;
};

/// Whether two elements have the same lengths and keys.
inline bool same_layout(const Element& a, const Element& b) {
  return a.layout == b.layout || (a.layout && b.layout && *a.layout == *b.layout);
}

}  // namespace detail
}  // namespace lockstep::data
