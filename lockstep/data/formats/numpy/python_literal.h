#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Reads the Python literal in the header of `.npy` files: a dict of texts, truth values and tuples of numbers.
namespace lockstep::data::detail {

/// A cursor over the text. Each function skips blanks, reads one token or value, and throws LiteralError where the text
/// has something else.
class PythonLiteral {
 public:
  /// What was expected, and where.
  struct LiteralError {
    std::string expected;
    size_t position;
  };

  explicit PythonLiteral(std::string_view text) : text_(text) {}

  /// Skips `symbol` if it comes next, and returns whether it did.
  bool accept(char symbol);
  void expect(char symbol);
  /// Returns whether only blanks are left.
  bool at_end();
  /// Returns the next symbol without skipping it, or 0 at the end.
  char peek();

  /// Reads 'text' or "text", without escapes: names and types of arrays have none.
  std::string text();
  /// Reads True or False.
  bool truth();
  /// Reads a number that is not negative, with or without Python 2's L.
  int64_t number();
  /// Reads (), (2,), (2, 3) or (2, 3,).
  std::vector<int64_t> numbers();

 private:
  void pass_blanks();
  [[noreturn]] void fail(std::string expected) const;

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace lockstep::data::detail
