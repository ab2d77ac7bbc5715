#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/data/sources.h"

/// What tests of transforms share: elements as text, and what must hold for every pipeline.
namespace lockstep::data::tests {

inline std::string text_of(const Leaf& leaf) {
  std::ostringstream text;
  if (const auto* bytes = leaf.as<Bytes>()) {
    text << *bytes;
  } else if (const auto* list = leaf.as<LeafList>()) {
    text << "list";
    for (const Leaf& each : *list->leaves) text << ' ' << text_of(each);
  } else if (leaf.as<Opaque>() != nullptr) {
    text << detail::describe(leaf);
  } else {
    const at::Tensor tensor = detail::to_tensor(leaf).to(at::kDouble).contiguous();
    if (tensor.dim() > 1) text << tensor.sizes();
    if (tensor.dim() > 0) text << '{';
    for (int64_t i = 0; i < tensor.numel(); ++i) text << (i > 0 ? " " : "") << tensor.data_ptr<double>()[i];
    if (tensor.dim() > 0) text << '}';
  }
  return text.str();
}

inline std::string text_of(const Element& element) {
  std::string text;
  for (const Leaf& leaf : element.leaves) text += (text.empty() ? "" : ", ") + text_of(leaf);
  return text;
}

using Texts = std::vector<std::string>;

/// The next element of an iterator, or nothing at the end; an exception is an element, too.
inline std::optional<std::string> next_of(NodeIterator& iterator) {
  try {
    Element element;
    if (!iterator.next(element)) return std::nullopt;
    return text_of(element);
  } catch (const std::exception&) {
    return "error";
  }
}

/// The rest of what an iterator gives, up to `limit` elements.
inline Texts rest_of(NodeIterator& iterator, size_t limit = 60) {
  Texts texts;
  while (texts.size() < limit) {
    auto text = next_of(iterator);
    if (!text) break;
    texts.push_back(*std::move(text));
  }
  return texts;
}

inline Texts all_of(const NodePtr& node, uint64_t epoch = 0, size_t limit = 60) {
  return rest_of(*node->iterator({.epoch = epoch}), limit);
}
template <class T>
Texts all_of(const Dataset<T>& dataset, uint64_t epoch = 0, size_t limit = 60) {
  return all_of(detail::node_of(dataset), epoch, limit);
}

/// Where the first leaf of each element lies. Equal addresses of rows show that nothing was copied inside the pipeline.
template <class T>
std::vector<const char*> addresses_of(const Dataset<T>& dataset) {
  std::vector<const char*> addresses;
  const auto iterator = detail::node_of(dataset)->iterator({});
  for (Element element; iterator->next(element);) {
    const auto* row = element.leaves.front().template as<Row>();
    addresses.push_back(
        row != nullptr ? row->data : static_cast<const char*>(detail::to_tensor(element.leaves.front()).data_ptr()));
  }
  return addresses;
}

inline Texts from(const Texts& texts, size_t start) {
  return {texts.begin() + static_cast<int64_t>(std::min(start, texts.size())), texts.end()};
}

/// Passing over elements is the same as asking for them, wherever one begins. The dataset has up to 30 elements or no
/// end.
inline void expect_skip_is_exact(const NodePtr& node, const std::vector<uint64_t>& epochs = {0, 3}) {
  for (const uint64_t epoch : epochs) {
    const Texts all = all_of(node, epoch);
    const bool endless = all.size() == 60;
    const size_t last = endless ? 25 : all.size() + 2;
    for (size_t start = 0; start <= std::min<size_t>(last, 5); ++start) {
      for (size_t count = 0; start + count <= last; ++count) {
        const auto iterator = node->iterator({.epoch = epoch});
        const size_t read = rest_of(*iterator, start).size();
        const auto skipped = static_cast<size_t>(iterator->skip(static_cast<int64_t>(count)));
        ASSERT_EQ(skipped, std::min(count, all.size() - read)) << detail::describe(*node) << " after " << start;
        const Texts rest = rest_of(*iterator, endless ? 60 - read - skipped : 60);
        ASSERT_EQ(rest, from(all, start + count))
            << detail::describe(*node) << ", start " << start << ", skip " << count << ", epoch " << epoch;
      }
    }
    // In small steps, and past the end.
    const auto iterator = node->iterator({.epoch = epoch});
    size_t position = 0;
    for (int64_t step = 1; position < last; step = step % 3 + 1) {
      const auto skipped = static_cast<size_t>(iterator->skip(step));
      position += skipped;
      if (skipped < static_cast<size_t>(step)) break;
      const auto text = next_of(*iterator);
      if (!text) break;
      ASSERT_EQ(*text, all.at(position++)) << detail::describe(*node);
    }
  }
}

/// Two iterators of one node do not disturb each other, and the end stays the end.
inline void expect_iterators_agree(const NodePtr& node) {
  const Texts all = all_of(node);
  const auto first = node->iterator({});
  const auto second = node->iterator({});
  for (const std::string& text : all) {
    EXPECT_EQ(next_of(*first), text);
    EXPECT_EQ(next_of(*second), text);
  }
  if (all.size() == 60) return;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(next_of(*first));
    EXPECT_EQ(second->skip(1), 0);
  }
}

/// What every transform promises.
inline void expect_well_behaved(const NodePtr& node) {
  SCOPED_TRACE(detail::describe(*node));
  expect_skip_is_exact(node);
  expect_iterators_agree(node);
  // The same node on the same inputs is the same dataset.
  EXPECT_EQ(all_of(node->with_inputs(node->inputs())), all_of(node));
  EXPECT_EQ(node->with_inputs(node->inputs())->name(), node->name());
  const Texts all = all_of(node);
  const auto size = node->cardinality().size();
  if (size) {
    EXPECT_EQ(static_cast<size_t>(*size), all.size());
  }
  if (node->cardinality().is_infinite()) {
    EXPECT_EQ(all.size(), 60U);
  }
}
template <class T>
void expect_well_behaved(const Dataset<T>& dataset) {
  expect_well_behaved(detail::node_of(dataset));
}

/// The numbers 0 .. n-1 from a source that cannot be gone through twice and has an unknown size.
inline Dataset<int64_t> generated(int64_t n) {
  return from_generator(
      [n] { return [n, i = int64_t{0}]() mutable { return i < n ? std::optional(i++) : std::nullopt; }; });
}

/// The numbers 0 .. n-1, where the elements in `bad` throw.
inline Dataset<int64_t> failing(int64_t n, std::vector<int64_t> bad) {
  return range(n).map([bad](int64_t i) {
    if (std::find(bad.begin(), bad.end(), i) != bad.end()) throw std::runtime_error("bad element");
    return i;
  });
}

template <class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

inline std::string str(const auto& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace lockstep::data::tests
