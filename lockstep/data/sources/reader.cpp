#include "lockstep/data/sources/reader.h"

#include <exception>

#include "lockstep/data/element/nest_codec.h"

namespace lockstep::data::detail {
namespace {

using Format = std::shared_ptr<const FileFormat>;

class ReaderIterator final : public NodeIterator {
 public:
  ReaderIterator(std::unique_ptr<NodeIterator> files, Format format)
      : files_(std::move(files)), format_(std::move(format)) {}

  bool next(Element& element) override {
    while (file_ || open_next()) {
      if (file_->next(element)) return true;
      file_.reset();
    }
    return false;
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (skipped < count) {
      try {
        if (!file_ && !open_next()) break;
      } catch (const std::exception&) {  // a file that cannot be opened is one error of `next`
        ++skipped;
        continue;
      }
      skipped += file_->skip(count - skipped);
      if (skipped < count) file_.reset();
    }
    return skipped;
  }

 private:
  /// After an exception the next call opens the next file.
  bool open_next() {
    Element name;
    if (!files_->next(name)) return false;
    file_ = format_->open(decode<std::string>(name));
    return true;
  }

  std::unique_ptr<NodeIterator> files_;
  Format format_;
  std::unique_ptr<NodeIterator> file_;
};

class ReaderNode final : public Node {
 public:
  ReaderNode(NodePtr files, Format format) : Node({std::move(files)}), format_(std::move(format)) {}

  std::string name() const override { return format_->name + "()"; }
  Role role() const override { return Role::Reader; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return make_node<ReaderNode>(std::move(inputs[0]), format_);
  }
  std::unique_ptr<NodeIterator> iterator(const Iteration& iteration) const override {
    return std::make_unique<ReaderIterator>(input()->iterator(iteration), format_);
  }
  ElementSpec spec() const override { return format_->spec; }
  Cardinality cardinality() const override {
    return format_->is_one_element ? input()->cardinality() : Cardinality::unknown();
  }

 private:
  Format format_;
};

}  // namespace

NodePtr make_reader(NodePtr files, FileFormat format) {
  return make_node<ReaderNode>(std::move(files), std::make_shared<const FileFormat>(std::move(format)));
}

}  // namespace lockstep::data::detail
