#pragma once

#include <string>
#include <string_view>

#include <c10/util/intrusive_ptr.h>

#include "lockstep/data/element/bytes.h"

/// Internal: buffers that are the pages of a file.
namespace lockstep::data::detail {

enum class MapMode {
  /// Read-only, mostly from beginning to end.
  Sequential,
  /// Read-only, in any order.
  Random,
  /// Writes change the memory of this process, never the file. In any order.
  Writable,
};

/// Maps a whole file. Throws DataError that names `operation` and the file. An empty file gives an empty buffer.
///
/// Parts of a read-only mapping can be had as pages of their own (`Buffer::private_pages`): they are read from the
/// file, and each page is copied by the system when it is first written.
c10::intrusive_ptr<Buffer> map_pages(const std::string& path, std::string_view operation, MapMode mode);

}  // namespace lockstep::data::detail
