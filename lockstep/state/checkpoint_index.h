#pragma once

#include <string>
#include <string_view>

#include "lockstep/state/checkpoint_folder.h"

/// Internal: the text of index.json.
namespace lockstep::detail {

/// What an index has. Parts have their pieces.
struct IndexContent {
  CheckpointInfo info;
  /// Numbers and texts.
  State values;
};

/// JSON, with a checksum of its own at the end. The same content gives the same text. ValueError where the pieces of a
/// tensor do not cover it exactly once; all names are listed.
LOCKSTEP_API std::string index_text(const CheckpointInfo& info, const State& values);

/// DataError with `place` where the text is damaged or no index.
LOCKSTEP_API IndexContent parse_index(std::string_view text, const std::string& place);

}  // namespace lockstep::detail
