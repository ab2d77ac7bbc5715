#pragma once

#include <string>

/// Numbers as people read them.
namespace lockstep::tools::reports {

/// At least `digits` significant digits, with a narrow space between thousands: `0.0123`, `12 345`, `1.2e+10`, `NaN`.
std::string format_number(double value, int digits = 4);

/// The digits of a number, with a narrow space between thousands from `10 000` on.
std::string with_spaces(std::string text);

/// A short time with its unit: `12.3 ms`, `450 µs`, `2.1 s`.
std::string format_seconds(double seconds);

/// A long time: `45 s`, `12 min 05 s`, `3 h 20 min`.
std::string format_duration(double seconds);

/// `512 KiB`, `1.25 GiB`.
std::string format_bytes(double bytes);

}  // namespace lockstep::tools::reports
