#include "lockstep/state/json_values.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kBase64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kBase64Letters[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text, std::string_view place) {
  LOCKSTEP_CHECK_DATA(text.size() % 4 == 0, "[", place, "] a text in base64 has a wrong length: length=", text.size());
  std::string bytes;
  while (text.ends_with('=')) text.remove_suffix(1);
  uint32_t group = 0;
  int bits = 0;
  for (const char letter : text) {
    const size_t value = kBase64Letters.find(letter);
    LOCKSTEP_CHECK_DATA(value != std::string_view::npos, "[", place, "] a text in base64 has a wrong letter");
    group = group << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 255);
  }
  return bytes;
}

double from_bits(const std::string& text, std::string_view place) {
  uint64_t bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  LOCKSTEP_CHECK_DATA(text.size() == 16 && error == std::errc() && end == text.data() + text.size(), "[", place,
                      "] the bits of a number must be 16 hexadecimal digits: bits=\"", text, "\"");
  return std::bit_cast<double>(bits);
}

std::string bits_text(double number) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(std::bit_cast<uint64_t>(number)));
  return digits.data();
}

/// Bytes of the character that begins with `first`; 0 where none does.
int utf8_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const int length = utf8_length(first);
    if (length == 0 || text.size() - i < static_cast<size_t>(length)) return false;
    uint32_t letter = length == 1 ? first : first & (0xffU >> (length + 1));
    for (int j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<size_t>(j)]);
      if ((next & 0xc0) != 0x80) return false;
      letter = letter << 6 | (next & 0x3f);
    }
    if (length == 3 && (letter < 0x800 || (letter >= 0xd800 && letter < 0xe000))) return false;
    if (length == 4 && (letter < 0x10000 || letter > 0x10ffff)) return false;
    i += static_cast<size_t>(length);
  }
  return true;
}

StateJson parse_state_json(std::string_view text, std::string_view place) {
  std::vector<std::set<std::string>> names;
  const auto check = [&](int, StateJson::parse_event_t event, StateJson& parsed) {
    if (event == StateJson::parse_event_t::object_start) names.emplace_back();
    if (event == StateJson::parse_event_t::object_end) names.pop_back();
    if (event == StateJson::parse_event_t::key) {
      LOCKSTEP_CHECK_DATA(names.back().insert(parsed.get<std::string>()).second, "[", place,
                          "] a name is there twice: name=", parsed.dump());
    }
    return true;
  };
  try {
    return StateJson::parse(text, check);
  } catch (const StateJson::parse_error& error) {
    LOCKSTEP_THROW(DataError, "[", place, "] the text must be JSON: byte=", error.byte,
                   " is wrong, bytes=", text.size());
  } catch (const StateJson::exception& error) {
    LOCKSTEP_THROW(DataError, "[", place, "] the text must be JSON: ", error.what());
  }
  return {};
}

StateJson value_to_json(const State::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* number = std::get_if<double>(&value)) {
    if (std::isfinite(*number)) return *number;
    return StateJson::object({{"bits", bits_text(*number)}});
  }
  const auto& text = std::get<std::string>(value);
  if (is_utf8(text)) return text;
  return StateJson::object({{"base64", to_base64(text)}});
}

State::Value value_from_json(const StateJson& json, std::string_view place) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_unsigned()) {
    const auto number = json.get<uint64_t>();
    LOCKSTEP_CHECK_DATA(number <= static_cast<uint64_t>(INT64_MAX), "[", place, "] an integer is too large: ", number);
    return static_cast<int64_t>(number);
  }
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_string()) return json.get<std::string>();
  const bool single = json.is_object() && json.size() == 1;
  if (single && json.contains("bits")) return from_bits(text_in(json, "bits", place), place);
  if (single && json.contains("base64")) return from_base64(text_in(json, "base64", place), place);
  LOCKSTEP_THROW(DataError, "[", place, "] a value must be a flag, a number or a text");
}

const StateJson& member_of(const StateJson& object, const char* name, std::string_view place) {
  LOCKSTEP_CHECK_DATA(object.is_object(), "[", place, "] must be an object with \"", name, "\"");
  const auto found = object.find(name);
  LOCKSTEP_CHECK_DATA(found != object.end(), "[", place, "] a member is missing: name=\"", name, "\"");
  return *found;
}

int64_t integer_in(const StateJson& object, const char* name, std::string_view place) {
  const StateJson& number = member_of(object, name, place);
  const bool fits = number.is_number_integer() &&
                    (!number.is_number_unsigned() || number.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  LOCKSTEP_CHECK_DATA(fits, "[", place, "] a member must be an integer: name=\"", name, "\"");
  return number.get<int64_t>();
}

std::string text_in(const StateJson& object, const char* name, std::string_view place) {
  const StateJson& text = member_of(object, name, place);
  LOCKSTEP_CHECK_DATA(text.is_string(), "[", place, "] a member must be a text: name=\"", name, "\"");
  return text.get<std::string>();
}

std::vector<int64_t> sizes_in(const StateJson& object, const char* name, std::string_view place) {
  const StateJson& list = member_of(object, name, place);
  LOCKSTEP_CHECK_DATA(list.is_array(), "[", place, "] a member must be a list: name=\"", name, "\"");
  std::vector<int64_t> sizes;
  for (const StateJson& size : list) {
    LOCKSTEP_CHECK_DATA(size.is_number_unsigned() && size.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX), "[",
                        place, "] a list must have integers of at least 0: name=\"", name, "\"");
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

int64_t checked_numel(const std::vector<int64_t>& sizes, int64_t bits, std::string_view place) {
  int64_t count = 1;
  int64_t total = 0;
  bool fits = true;
  for (const int64_t size : sizes) fits = fits && !__builtin_mul_overflow(count, size, &count);
  fits = fits && !__builtin_mul_overflow(count, bits, &total);
  LOCKSTEP_CHECK_DATA(fits, "[", place, "] a shape has too many elements");
  return count;
}

}  // namespace lockstep::detail
