#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Reads the Python literal in the header of `.npy` files: a dict of texts, truth values and tuples of numbers.
namespace lockstep::data::detail {

/// A cursor over the text. Each function passes over blanks, reads one thing, and throws LiteralError where it is not
/// there.
class PythonLiteral {
 public:
  /// What was expected, and where.
  struct LiteralError {
    std::string expected;
    size_t position;
  };

  explicit PythonLiteral(std::string_view text) : text_(text) {}

  /// Passes over `symbol` if it comes next, and tells whether it did.
  bool accept(char symbol);
  void expect(char symbol);
  /// Tells whether nothing but blanks is left.
  bool at_end();
  /// Returns the next symbol without passing over it, or 0 at the end.
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
