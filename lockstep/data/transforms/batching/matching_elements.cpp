#include "lockstep/data/transforms/batching/matching_elements.h"

#include <optional>
#include <string>
#include <utility>

#include <c10/util/StringUtil.h>

namespace lockstep::data::detail {
namespace {

/// The dtype and number of dimensions of a tensor, row or number; nothing for other values.
std::optional<std::pair<at::ScalarType, size_t>> form_of(const Leaf& leaf) {
  if (const auto* row = leaf.as<Row>()) return std::pair(row->type->dtype, row->type->sizes.size());
  if (const auto* number = leaf.as<Number>()) return std::pair(number->dtype, size_t{0});
  const auto* tensor = leaf.as<at::Tensor>();
  if (tensor == nullptr || !tensor->defined()) return std::nullopt;
  return std::pair(tensor->scalar_type(), static_cast<size_t>(tensor->dim()));
}

bool have_same_parts(const Element& a, const Element& b) {
  return a.leaves.size() == b.leaves.size() && same_layout(a, b);
}

/// Returns the first part in which two elements with the same parts differ.
std::optional<size_t> different_part(const Element& a, const Element& b) {
  for (size_t i = 0; i < a.leaves.size(); ++i) {
    if (form_of(a.leaves[i]) != form_of(b.leaves[i])) return i;
  }
  return std::nullopt;
}

bool have_one_form(const Element& a, const Element& b) { return have_same_parts(a, b) && !different_part(a, b); }

std::string misfit(const Element& first, const Element& element, int64_t number, const char* operation) {
  if (!have_same_parts(first, element)) {
    return c10::str("[", operation,
                    "] all elements of a batch must have the same parts and keys: parts=", first.leaves.size(), " and ",
                    element.leaves.size());
  }
  const size_t part = different_part(first, element).value();
  return c10::str("[", operation, "] all elements of a batch must have one dtype and number of dimensions: part ", part,
                  " of element ", number, " is ", describe(element.leaves[part]), ", others are ",
                  describe(first.leaves[part]));
}

}  // namespace

MatchingElements::MatchingElements(const char* operation, int64_t capacity)
    : operation_(operation), misfits_(have_one_form, capacity) {}

void MatchingElements::add(Element& element) {
  if (elements_.empty() || have_one_form(elements_.front(), element)) {
    elements_.push_back(std::move(element));
    misfits_.batch_grows(size());
    return;
  }
  std::string message = misfit(elements_.front(), element, size(), operation_);
  replace(misfits_.hold(element, std::move(message), size()));
}

void MatchingElements::end() {
  replace(misfits_.decide(size(), [](const Element&) { return false; }));
}

void MatchingElements::replace(std::vector<Element> group) {
  if (group.empty()) return;
  for (size_t i = 0; i < elements_.size(); ++i) {
    misfits_.add_error(misfit(group.front(), elements_[i], static_cast<int64_t>(i), operation_));
  }
  elements_ = std::move(group);
}

std::vector<Element> MatchingElements::take() { return std::exchange(elements_, {}); }

}  // namespace lockstep::data::detail
