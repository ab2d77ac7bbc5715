#include "lockstep/value/float_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include <c10/util/Half.h>

namespace lockstep::detail {
namespace {

constexpr int kPrecision = 8;

// A finite number: 12.5 is {false, "125", 1}.
struct Decimal {
  bool negative;
  std::string digits;
  int exponent;
};

// A finite number as it is set: 12.5 is {"12", "5", ""}, or {"1", "25", "+01"} in scientific notation.
struct Parts {
  std::string whole;
  std::string fraction;
  std::string exponent;
};

template <class... Format>
std::string characters(Format... format) {
  std::array<char, 512> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), format...).ptr;
  return {text.data(), end};
}

Decimal decimal_of(std::string_view scientific) {
  Decimal decimal{};
  decimal.negative = scientific.front() == '-';
  if (decimal.negative) scientific.remove_prefix(1);
  const size_t e = scientific.find('e');
  decimal.digits = scientific.front();
  if (e > 1) decimal.digits += scientific.substr(2, e - 2);
  decimal.digits.erase(std::max<size_t>(decimal.digits.find_last_not_of('0') + 1, 1));
  decimal.exponent = std::stoi(std::string(scientific.substr(e + 1)));
  return decimal;
}

template <class T>
Decimal shortest(T value) {
  return decimal_of(characters(value, std::chars_format::scientific));
}

// Tries few digits first, and a tie in both directions.
template <>
Decimal shortest(c10::Half value) {
  const auto number = static_cast<float>(value);
  std::string text;
  for (int precision = 0; precision < 5; ++precision) {
    for (const float near : {number, std::nextafter(number, 2 * number)}) {
      text = characters(near, std::chars_format::scientific, precision);
      float read = 0;
      std::from_chars(text.data(), text.data() + text.size(), read);
      if (c10::Half(read) == value) return decimal_of(text);
    }
  }
  return decimal_of(text);
}

Decimal rounded(double value, int places) {
  return decimal_of(characters(value, std::chars_format::scientific, places));
}

std::string sign_of(const Decimal& decimal, bool plus) { return decimal.negative ? "-" : plus ? "+" : ""; }

Parts positional(const Decimal& decimal, bool plus) {
  const std::string& digits = decimal.digits;
  const int size = static_cast<int>(digits.size());
  const std::string sign = sign_of(decimal, plus);
  if (decimal.exponent < 0) {
    const std::string zeros(static_cast<size_t>(-decimal.exponent - 1), '0');
    return {sign + "0", digits == "0" ? "" : zeros + digits, ""};
  }
  if (decimal.exponent + 1 >= size) {
    return {sign + digits + std::string(static_cast<size_t>(decimal.exponent + 1 - size), '0'), "", ""};
  }
  const auto whole = static_cast<size_t>(decimal.exponent + 1);
  return {sign + digits.substr(0, whole), digits.substr(whole), ""};
}

Parts scientific(const Decimal& decimal, bool plus) {
  const std::string power = std::to_string(std::abs(decimal.exponent));
  return {sign_of(decimal, plus) + decimal.digits[0], decimal.digits.substr(1),
          (decimal.exponent < 0 ? "-" : "+") + std::string(power.size() < 2, '0') + power};
}

// The largest power of ten below which an array of T is not in scientific notation.
template <class T>
double array_limit() {
  return std::pow(10.0, std::min(kPrecision, std::numeric_limits<T>::digits10));
}

template <class T>
bool needs_exponent(const std::vector<T>& values) {
  double most = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const T value : values) {
    const double size = std::abs(static_cast<double>(value));
    if (size == 0 || !std::isfinite(size)) continue;
    most = std::max(most, size);
    least = std::min(least, size);
  }
  if (most == 0) return false;
  const T ratio = static_cast<T>(most) / static_cast<T>(least);
  return most >= array_limit<T>() || least < static_cast<double>(static_cast<T>(1e-4)) ||
         static_cast<double>(ratio) > 1000;
}

template <class T>
Parts parts_of(T value, bool exponent, bool plus) {
  Decimal decimal = shortest(value);
  const int most = kPrecision + (exponent ? 0 : decimal.exponent);
  if (static_cast<int>(decimal.digits.size()) - 1 > most) {
    decimal = rounded(static_cast<double>(value), most);
  }
  return exponent ? scientific(decimal, plus) : positional(decimal, plus);
}

std::string not_finite(double value, bool plus) {
  if (std::isnan(value)) return plus ? "+nan" : "nan";
  return value < 0 ? "-inf" : plus ? "+inf" : "inf";
}

// Widths of a column: before the point, after it, and of the digits of the exponent.
struct Widths {
  size_t whole = 0;
  size_t fraction = 0;
  size_t power = 0;
  size_t after_point() const { return fraction + (power == 0 ? 0 : power + 2); }
};

std::string set(const Parts& parts, const Widths& widths) {
  std::string text = std::string(widths.whole - parts.whole.size(), ' ') + parts.whole + "." + parts.fraction;
  text.append(widths.fraction - parts.fraction.size(), widths.power == 0 ? ' ' : '0');
  if (widths.power == 0) return text;
  const std::string_view power = parts.exponent;
  return text + "e" + power[0] + std::string(widths.power + 1 - power.size(), '0') + std::string(power.substr(1));
}

}  // namespace

template <class T>
std::string float_text(T value, double limit, const char* tail) {
  const auto number = static_cast<double>(value);
  if (!std::isfinite(number)) return not_finite(number, false);
  const Decimal decimal = shortest(value);
  const double size = std::abs(number);
  const bool exponent = size != 0 && (size < 1e-4 || size >= limit);
  const Parts parts = exponent ? scientific(decimal, false) : positional(decimal, false);
  if (exponent) return parts.whole + (parts.fraction.empty() ? "" : "." + parts.fraction) + "e" + parts.exponent;
  return parts.whole + (parts.fraction.empty() ? tail : "." + parts.fraction);
}

template <class T>
std::vector<std::string> float_words(const std::vector<T>& values, bool plus) {
  const bool exponent = needs_exponent(values);
  std::vector<Parts> parts(values.size());
  Widths widths;
  size_t special = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    if (!std::isfinite(value)) {
      special = std::max(special, not_finite(value, plus).size());
      continue;
    }
    parts[i] = parts_of(values[i], exponent, plus);
    widths.whole = std::max(widths.whole, parts[i].whole.size());
    widths.fraction = std::max(widths.fraction, parts[i].fraction.size());
    if (exponent) widths.power = std::max(widths.power, parts[i].exponent.size() - 1);
  }
  const size_t after = widths.after_point() + 1;
  if (special > after) widths.whole = std::max(widths.whole, special - after);
  const size_t width = widths.whole + after;

  std::vector<std::string> words;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    if (std::isfinite(value)) {
      if (exponent && parts[i].fraction.size() < widths.fraction) {
        parts[i] = scientific(rounded(value, static_cast<int>(widths.fraction)), plus);
      }
      words.push_back(set(parts[i], widths));
    } else {
      const std::string word = not_finite(value, plus);
      words.push_back(std::string(width - word.size(), ' ') + word);
    }
  }
  return words;
}

std::string general_text(float value) {
  if (std::isnan(value)) return "nan";
  return characters(value, std::chars_format::general, 6);
}

template std::string float_text(double, double, const char*);
template std::string float_text(float, double, const char*);
template std::string float_text(c10::Half, double, const char*);
template std::vector<std::string> float_words(const std::vector<double>&, bool);
template std::vector<std::string> float_words(const std::vector<float>&, bool);
template std::vector<std::string> float_words(const std::vector<c10::Half>&, bool);

}  // namespace lockstep::detail
