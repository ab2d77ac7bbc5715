#include "lockstep/data/formats/numpy/python_literal.h"

#include <limits>
#include <utility>

namespace lockstep::data::detail {

void PythonLiteral::pass_blanks() {
  while (position_ < text_.size() && std::string_view(" \t\r\n\f\v").find(text_[position_]) != std::string_view::npos) {
    ++position_;
  }
}

void PythonLiteral::fail(std::string expected) const { throw LiteralError{std::move(expected), position_}; }

char PythonLiteral::peek() {
  pass_blanks();
  return position_ < text_.size() ? text_[position_] : '\0';
}

bool PythonLiteral::at_end() {
  pass_blanks();
  return position_ == text_.size();
}

bool PythonLiteral::accept(char symbol) {
  if (at_end() || text_[position_] != symbol) return false;
  ++position_;
  return true;
}

void PythonLiteral::expect(char symbol) {
  if (!accept(symbol)) fail(std::string("'") + symbol + "'");
}

std::string PythonLiteral::text() {
  const char quote = peek();
  if (quote != '\'' && quote != '"') fail("a text in quotes");
  const size_t end = text_.find(quote, position_ + 1);
  if (end == std::string_view::npos) fail("a closing quote");
  const std::string_view content = text_.substr(position_ + 1, end - position_ - 1);
  if (content.find_first_of("\\\n") != std::string_view::npos) fail("a text without escapes");
  position_ = end + 1;
  return std::string(content);
}

bool PythonLiteral::truth() {
  pass_blanks();
  const std::string_view rest = text_.substr(position_);
  for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
    if (rest.starts_with(word)) {
      position_ += word.size();
      return value;
    }
  }
  fail("True or False");
}

int64_t PythonLiteral::number() {
  pass_blanks();
  const size_t start = position_;
  int64_t value = 0;
  for (; position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9'; ++position_) {
    const int64_t digit = text_[position_] - '0';
    if (value > (std::numeric_limits<int64_t>::max() - digit) / 10) fail("a number below 2^63");
    value = value * 10 + digit;
  }
  if (position_ == start) fail("a number that is not negative");
  if (position_ < text_.size() && text_[position_] == 'L') ++position_;
  return value;
}

std::vector<int64_t> PythonLiteral::numbers() {
  std::vector<int64_t> values;
  expect('(');
  while (!accept(')')) {
    values.push_back(number());
    if (accept(',')) continue;
    // One number in brackets is that number: a tuple of one has a comma.
    if (values.size() == 1) fail("','");
    expect(')');
    break;
  }
  return values;
}

}  // namespace lockstep::data::detail
