#pragma once

#include <string>
#include <vector>

/// Floating point numbers as Python and NumPy write them: with the fewest digits that read back as the same number of
/// the same type. T is double, float or c10::Half.
namespace lockstep::detail {

/// Returns `value` alone: `6.0`, `1e-07`, `inf`. Scientific notation starts below 1e-4 and at `limit`; `tail` ends
/// whole numbers.
template <class T>
std::string float_text(T value, double limit = 1e16, const char* tail = ".0");

/// Returns the texts of an array's elements, all of one width. They have at most 8 decimals, and all are in scientific
/// notation if one of them is too large, too small, or 1000 times another. `plus` writes the sign of positive numbers
/// as well.
template <class T>
std::vector<std::string> float_words(const std::vector<T>& values, bool plus = false);

/// Returns `value` with 6 significant digits as `operator<<` writes it, and nan without a sign.
std::string general_text(float value);

}  // namespace lockstep::detail
