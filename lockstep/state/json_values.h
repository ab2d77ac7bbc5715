#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/state/state.h"

/// Internal: JSON of checkpoints and weights. Only for sources: nlohmann-json is no part of the interface.
namespace lockstep::detail {

using StateJson = nlohmann::json;

/// Parses a text. DataError with `place` (what is read) and the position of a mistake, also for a name that an object
/// has twice.
StateJson parse_state_json(std::string_view text, std::string_view place);

/// A number, flag or text as JSON. Numbers keep their bits; numbers that are not finite and texts that are not UTF-8
/// are objects {"bits": "7ff0000000000000"}, {"base64": "..."}.
StateJson value_to_json(const State::Value& value);
State::Value value_from_json(const StateJson& json, std::string_view place);

bool is_utf8(std::string_view text);

/// Members of objects, with DataError where they are missing or of another kind.
const StateJson& member_of(const StateJson& object, const char* name, std::string_view place);
int64_t integer_in(const StateJson& object, const char* name, std::string_view place);
std::string text_in(const StateJson& object, const char* name, std::string_view place);
/// Numbers of at least zero.
std::vector<int64_t> sizes_in(const StateJson& object, const char* name, std::string_view place);

/// The number of elements; DataError where it, or as many bytes, is no int64.
int64_t checked_numel(const std::vector<int64_t>& sizes, int64_t bits, std::string_view place);

}  // namespace lockstep::detail
