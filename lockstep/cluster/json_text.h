#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lockstep/cluster/cluster_spec.h"

/// JSON of launchers and services. Only for sources: nlohmann-json is no part of the interface.
namespace lockstep::detail {

using Json = nlohmann::json;

/// Parses `text` from `source` (a variable or an address). Throws `c10::ValueError` that names the source and the
/// position of the error, and contains nothing of the text, which may hold a secret.
Json parse_json(std::string_view source, std::string_view text);

/// Reads the jobs of a cluster. Throws `c10::TypeError` that names `source`.
ClusterSpec cluster_from_json(std::string_view source, const Json& jobs);

/// Returns the text at a path of keys, such as {"status", "podIP"}, or "" where it is missing or no text.
std::string text_at(const Json& value, std::initializer_list<std::string_view> path);

}  // namespace lockstep::detail
