#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/data/node.h"

/// Inside: datasets that read files. One node serves all formats: it takes the names of files from its input, opens one
/// after the other and gives what is in them. So files can be shuffled, repeated and dealt to workers as any elements
/// are.
namespace lockstep::data::detail {

struct FileFormat {
  /// How the source is called in programs and messages: "tfrecords".
  std::string name;
  /// Starts reading one file.
  std::function<std::unique_ptr<NodeIterator>(const std::string& path)> open;
  /// What its elements are.
  ElementSpec spec;
};

/// `files` gives a text or bytes: the path of a file.
LOCKSTEP_API NodePtr make_reader(NodePtr files, FileFormat format);

}  // namespace lockstep::data::detail
