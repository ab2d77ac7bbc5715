#include "lockstep/value/numpy_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "lockstep/value/float_text.h"

namespace lockstep::detail {
namespace {

template <class T>
std::vector<T> values_of(const at::Tensor& elements) {
  const T* first = elements.data_ptr<T>();
  return {first, first + elements.numel()};
}

// Only some releases of LibTorch have this type.
bool is_uint64(at::ScalarType type) { return std::string_view(c10::toString(type)) == "UInt64"; }

std::vector<std::string> integer_texts(const at::Tensor& elements) {
  const bool is_unsigned = is_uint64(elements.scalar_type());
  std::vector<std::string> texts;
  for (const int64_t value : values_of<int64_t>(elements.to(at::kLong))) {
    texts.push_back(is_unsigned ? std::to_string(static_cast<uint64_t>(value)) : std::to_string(value));
  }
  return texts;
}

std::vector<std::string> integer_words(const at::Tensor& elements) {
  std::vector<std::string> words = integer_texts(elements);
  size_t width = 0;
  for (const std::string& word : words) width = std::max(width, word.size());
  for (std::string& word : words) word.insert(0, width - word.size(), ' ');
  return words;
}

std::vector<std::string> bool_words(const at::Tensor& elements) {
  std::vector<std::string> words;
  const bool* first = elements.data_ptr<bool>();
  for (int64_t i = 0; i < elements.numel(); ++i) words.emplace_back(first[i] ? " True" : "False");
  return words;
}

std::vector<std::string> general_words(const at::Tensor& elements) {
  std::vector<std::string> words;
  for (const float value : values_of<float>(elements.to(at::kFloat))) words.push_back(general_text(value));
  return words;
}

template <class T>
std::vector<std::string> complex_words(const at::Tensor& elements) {
  const at::Tensor pairs = at::view_as_real(elements);
  const std::vector<std::string> real = float_words(values_of<T>(pairs.select(-1, 0).contiguous()));
  std::vector<std::string> words = float_words(values_of<T>(pairs.select(-1, 1).contiguous()), true);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i].insert(words[i].find_last_not_of(' ') + 1, "j");
    words[i].insert(0, real[i]);
  }
  return words;
}

template <class T>
double scalar_limit(Form form) {
  const int digits = std::numeric_limits<T>::digits10;
  return form == Form::Repr || digits > 8 ? 1e16 : std::pow(10.0, digits);
}

template <class T>
std::string float_scalar(const at::Tensor& element, Form form) {
  return float_text(*element.data_ptr<T>(), scalar_limit<T>(form));
}

template <class T>
std::string complex_scalar(const at::Tensor& element, Form form) {
  const auto value = *element.data_ptr<c10::complex<T>>();
  const double limit = scalar_limit<T>(form);
  const std::string imag = float_text(value.imag(), limit, "") + "j";
  if (value.real() == 0 && !std::signbit(value.real())) return imag;
  return "(" + float_text(value.real(), limit, "") + (imag[0] == '-' ? "" : "+") + imag + ")";
}

// Writes the axes from the outside to the inside and takes the words in that order.
class Typesetter {
 public:
  Typesetter(const std::vector<std::string>& words, at::IntArrayRef sizes, const Page& page)
      : words_(words), sizes_(sizes), page_(page) {}

  std::string axis(size_t axis, size_t indent, size_t width) {
    if (axis == sizes_.size()) return words_[next_++];
    return "[" + (axis + 1 == sizes_.size() ? row(indent, width) : stack(axis, indent, width)) + "]";
  }

 private:
  bool cut(size_t axis) const { return page_.summarized && sizes_[axis] > 2 * kEdgeItems; }
  int64_t shown(size_t axis) const { return cut(axis) ? 2 * kEdgeItems : sizes_[axis]; }

  std::string stack(size_t axis, size_t indent, size_t width) {
    const std::string comma(page_.separator.substr(0, page_.separator.find_last_not_of(' ') + 1));
    const std::string gap = comma + std::string(sizes_.size() - axis - 1, '\n') + std::string(indent, ' ');
    std::string text;
    for (int64_t i = 0; i < shown(axis); ++i) {
      if (i > 0) text += gap;
      if (i == kEdgeItems && cut(axis)) text += "..." + gap;
      text += this->axis(axis + 1, indent + 1, width - 1);
    }
    return text;
  }

  std::string row(size_t indent, size_t width) {
    const size_t last = sizes_.size() - 1;
    std::string text;
    std::string line(indent, ' ');
    const auto put = [&](const std::string& word) {
      if (line.size() + word.size() > width - 1 && line.size() > indent) {
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        line.assign(indent, ' ');
      }
      line += word;
    };
    for (int64_t i = 0; i < shown(last); ++i) {
      if (i > 0) line += page_.separator;
      if (i == kEdgeItems && cut(last)) {
        put("...");
        line += page_.separator;
      }
      put(words_[next_++]);
    }
    return (text + line).substr(indent);
  }

  const std::vector<std::string>& words_;
  at::IntArrayRef sizes_;
  const Page& page_;
  size_t next_ = 0;
};

}  // namespace

bool is_printable(at::ScalarType type) {
  return at::isIntegralType(type, /*includeBool=*/true) || at::isFloatingType(type) || at::isComplexType(type);
}

std::vector<std::string> element_words(const at::Tensor& elements) {
  switch (elements.scalar_type()) {
    case at::kBool:
      return bool_words(elements);
    case at::kHalf:
      return float_words(values_of<at::Half>(elements));
    case at::kFloat:
      return float_words(values_of<float>(elements));
    case at::kDouble:
      return float_words(values_of<double>(elements));
    case at::kComplexDouble:
      return complex_words<double>(elements);
    default:
      if (elements.is_complex()) return complex_words<float>(elements.to(at::kComplexFloat));
      return elements.is_floating_point() ? general_words(elements) : integer_words(elements);
  }
}

std::string scalar_word(const at::Tensor& element, Form form) {
  switch (element.scalar_type()) {
    case at::kBool:
      return *element.data_ptr<bool>() ? "True" : "False";
    case at::kHalf:
      return float_scalar<at::Half>(element, form);
    case at::kFloat:
      return float_scalar<float>(element, form);
    case at::kDouble:
      return float_scalar<double>(element, form);
    case at::kComplexDouble:
      return complex_scalar<double>(element, form);
    default:
      if (element.is_complex()) return complex_scalar<float>(element.to(at::kComplexFloat), form);
      if (!element.is_floating_point()) return integer_texts(element)[0];
      return form == Form::Str ? general_words(element)[0] : float_scalar<double>(element.to(at::kDouble), form);
  }
}

std::string bracketed(const std::vector<std::string>& words, at::IntArrayRef sizes, const Page& page) {
  if (words.empty()) return "[]";
  return Typesetter(words, sizes, page).axis(0, page.indent + 1, page.width);
}

}  // namespace lockstep::detail
