#include "tests/golden/worker_values.h"

#include <cctype>
#include <charconv>
#include <optional>
#include <regex>
#include <utility>

#include <ATen/ATen.h>

#include "tests/golden/harness.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden {
namespace {

/// Goes through a text from left to right.
class Reader {
 public:
  Reader(std::string_view text, const NamedNumbers& names) : text_(text), names_(names) {}

  double sum() {
    double value = product();
    while (true) {
      if (take("+")) {
        value += product();
      } else if (take("-")) {
        value -= product();
      } else {
        return value;
      }
    }
  }

  /// A list of numbers at any depth, or one number.
  Json nested() {
    if (!take("[")) return sum();
    Json items = Json::array();
    if (take("]")) return items;
    do {
      items.push_back(nested());
    } while (take(","));
    expect(take("]"));
    return items;
  }

  bool take(std::string_view word) {
    skip_blanks();
    if (!text_.substr(place_).starts_with(word)) return false;
    place_ += word.size();
    return true;
  }

  std::string_view rest() {
    skip_blanks();
    return text_.substr(place_);
  }

  void expect(bool holds) const {
    if (!holds) throw HarnessError("[worker_values] unknown: text=\"" + std::string(text_) + "\"");
  }

 private:
  double product() {
    double value = *expected_factor();
    while (true) {
      if (take("*")) {
        value *= *expected_factor();
      } else if (take("/")) {
        value /= *expected_factor();
      } else if (const auto next = factor(/*is_first=*/false)) {
        value *= *next;
      } else {
        return value;
      }
    }
  }

  std::optional<double> expected_factor() {
    const auto value = factor();
    expect(value.has_value());
    return value;
  }

  /// A number, a name or a sum in parentheses. A first factor must be there.
  std::optional<double> factor(bool is_first = true) {
    skip_blanks();
    for (const auto& [name, value] : names_) {
      if (is_word(name) && take(name)) return value;
    }
    if (is_first && take("(")) {
      const double value = sum();
      expect(take(")"));
      return value;
    }
    if (is_first && take("-")) return -*expected_factor();
    double value = 0;
    const char* const begin = text_.data() + place_;
    const char* const end = text_.data() + text_.size();
    const bool is_number = begin != end && std::isdigit(static_cast<unsigned char>(*begin)) != 0;
    if (is_first) expect(is_number);
    if (!is_number) return std::nullopt;
    place_ += static_cast<size_t>(std::from_chars(begin, end, value, std::chars_format::fixed).ptr - begin);
    if (text_.substr(place_ - 1).starts_with("..")) --place_;  // "0..3"
    return value;
  }

  /// Whether the next characters are all of a name.
  bool is_word(const std::string& name) const {
    const std::string_view next = text_.substr(place_);
    return next.starts_with(name) &&
           (next.size() == name.size() || std::isalpha(static_cast<unsigned char>(next[name.size()])) == 0);
  }

  void skip_blanks() {
    while (place_ < text_.size() && text_[place_] == ' ') ++place_;
  }

  std::string_view text_;
  const NamedNumbers& names_;
  size_t place_ = 0;
};

/// Splits "TEXT, int32" into the text and the dtype.
std::pair<std::string, std::string> with_dtype(const std::string& text) {
  static const std::regex pattern("(.*), (bool|b?float\\d+|u?int\\d+)");
  std::smatch match;
  if (!std::regex_match(text, match, pattern)) return {text, "float32"};
  return {match[1], match[2]};
}

}  // namespace

double number_in(std::string_view text, const NamedNumbers& names) {
  Reader reader(text, names);
  const double value = reader.sum();
  reader.expect(reader.rest().empty());
  return value;
}

at::Tensor tensor_in(std::string_view text, const NamedNumbers& names) {
  const auto [value, dtype] = with_dtype(std::string(text));
  Reader reader(value, names);
  const Json first = reader.nested();
  const auto options = at::TensorOptions(scalar_type(dtype));
  at::Tensor tensor;
  if (reader.take("repeated")) {
    tensor = at::full({static_cast<int64_t>(reader.sum())}, first.get<double>(), options);
    reader.expect(reader.take("times"));
  } else if (reader.take("rows of")) {
    const at::Tensor row = tensor_from_json(dtype, reader.nested());
    tensor = row.unsqueeze(0).repeat({first.get<int64_t>(), 1});
  } else if (reader.take("..")) {
    tensor = at::arange(first.get<int64_t>(), static_cast<int64_t>(reader.sum()) + 1, options);
  } else {
    tensor = tensor_from_json(dtype, first);
  }
  reader.expect(reader.rest().empty());
  return tensor;
}

}  // namespace lockstep::golden
