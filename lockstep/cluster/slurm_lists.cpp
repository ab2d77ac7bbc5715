#include "lockstep/cluster/slurm_lists.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kMostEntries = 1'000'000;
constexpr std::string_view kMarks = ",[] \t\n";  // what is in no host's name

/// Goes through a text from left to right, and throws with all of it where it is not as it should be.
class Reader {
 public:
  Reader(const char* operation, std::string_view form, std::string_view text)
      : operation_(operation), form_(form), text_(text) {}

  bool at_end() const { return place_ == text_.size(); }

  bool is_at(char c) const { return !at_end() && text_[place_] == c; }

  bool take(char c) {
    const bool found = is_at(c);
    if (found) ++place_;
    return found;
  }

  void expect(bool holds) const {
    LOCKSTEP_CHECK_VALUE(holds, "[", operation_, "] the text must have the form ", form_, ": text=\"", text_,
                         "\", wrong at character ", place_ + 1);
  }

  void expect_size(uint64_t size) const {
    LOCKSTEP_CHECK_VALUE(size <= kMostEntries, "[", operation_, "] the list is too long: text=\"", text_,
                         "\", entries=", size, ", most=", kMostEntries);
  }

  /// Takes characters up to one of `ends`, which is left.
  std::string_view take_until(std::string_view ends) {
    const size_t end = std::min(text_.find_first_of(ends, place_), text_.size());
    const std::string_view part = text_.substr(place_, end - place_);
    place_ = end;
    return part;
  }

  /// Takes the digits of a number of at most nine places.
  std::string_view take_digits() {
    const size_t start = place_;
    while (!at_end() && text_[place_] >= '0' && text_[place_] <= '9') ++place_;
    expect(place_ > start && place_ - start <= 9);
    return text_.substr(start, place_ - start);
  }

 private:
  const char* operation_;
  std::string_view form_;
  std::string_view text_;
  size_t place_ = 0;
};

int value_of(std::string_view digits) {
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::string padded(int value, size_t width) {
  std::string digits = std::to_string(value);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

/// Reads "1-2,5,08-10" behind an opening bracket, and the closing one.
std::vector<std::string> read_numbers(Reader& reader) {
  std::vector<std::string> numbers;
  do {
    const std::string_view first = reader.take_digits();
    const std::string_view last = reader.take('-') ? reader.take_digits() : first;
    reader.expect(value_of(first) <= value_of(last));
    reader.expect_size(numbers.size() + static_cast<uint64_t>(value_of(last) - value_of(first)) + 1);
    for (int value = value_of(first); value <= value_of(last); ++value) numbers.push_back(padded(value, first.size()));
  } while (reader.take(','));
  reader.expect(reader.take(']'));
  return numbers;
}

/// Reads one host, or "r[1-2]n[1-4]", up to a comma or the end.
std::vector<std::string> read_hosts(Reader& reader) {
  std::string_view text = reader.take_until(kMarks);
  reader.expect(!text.empty());
  std::vector<std::string> hosts{std::string(text)};
  while (reader.take('[')) {
    const auto numbers = read_numbers(reader);
    text = reader.take_until(kMarks);
    reader.expect(text.empty() || reader.is_at('['));  // Slurm has numbers at the end of names
    reader.expect_size(static_cast<uint64_t>(hosts.size()) * numbers.size());
    std::vector<std::string> longer;
    for (const std::string& host : hosts) {
      for (const std::string& number : numbers) longer.push_back(host + number + std::string(text));
    }
    hosts = std::move(longer);
  }
  return hosts;
}

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view text) {
  Reader reader("expand_hostlist", "n[1-2],m5,o[08-10,12]", text);
  std::vector<std::string> hosts;
  do {
    const auto more = read_hosts(reader);
    reader.expect_size(hosts.size() + more.size());
    hosts.insert(hosts.end(), more.begin(), more.end());
  } while (reader.take(','));
  reader.expect(reader.at_end());
  return hosts;
}

std::vector<int> expand_tasks_per_node(std::string_view text) {
  Reader reader("expand_tasks_per_node", "3(x2),2,1", text);
  std::vector<int> counts;
  do {
    const int count = value_of(reader.take_digits());
    int repeats = 1;
    if (reader.take('(')) {
      reader.expect(reader.take('x'));
      repeats = value_of(reader.take_digits());
      reader.expect(reader.take(')'));
    }
    reader.expect_size(counts.size() + static_cast<uint64_t>(repeats));
    counts.insert(counts.end(), repeats, count);
  } while (reader.take(','));
  reader.expect(reader.at_end());
  return counts;
}

std::optional<int> count_resources(std::string_view text, std::string_view resource) {
  constexpr int kMostOfOne = 1 << 20;
  std::optional<int> sum;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string_view entry = text.substr(start, end - start);
    start = end + 1;
    if (!entry.starts_with(resource)) continue;
    const size_t mark = entry.find_last_of(":=");
    const std::string_view digits = mark == std::string_view::npos ? entry : entry.substr(mark + 1);
    int count = 0;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    const bool is_count = error == std::errc() && rest == digits.data() + digits.size();
    if (!is_count || count < 0 || count > kMostOfOne) return std::nullopt;
    sum = sum.value_or(0) + count;
  }
  return sum;
}

}  // namespace lockstep
