#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/data/node.h"

/// Internal: datasets that read files. One node serves all formats: it reads the names of files from its input and
/// opens one after the other. So file names can be shuffled, repeated and sharded like any elements.
namespace lockstep::data::detail {

struct FileFormat {
  /// The name of the source in programs and messages: "tfrecords".
  std::string name;
  /// Starts reading one file.
  std::function<std::unique_ptr<NodeIterator>(const std::string& path)> open;
  /// The spec of its elements.
  ElementSpec spec;
  /// Whether each file is one element.
  bool is_one_element = false;
};

/// The elements of `files` are a text or bytes: the path of a file.
LOCKSTEP_API NodePtr make_reader(NodePtr files, FileFormat format);

}  // namespace lockstep::data::detail
