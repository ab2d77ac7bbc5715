#include "lockstep/base/error.h"
#include "lockstep/data/files.h"
#include "lockstep/data/sources/reader.h"

namespace lockstep::data::detail {
namespace {

using Columns = std::shared_ptr<const std::vector<CsvColumn>>;

class CsvIterator final : public NodeIterator {
 public:
  CsvIterator(const std::string& path, Columns columns, const CsvOptions& options)
      : path_(path), reader_(path, options), columns_(std::move(columns)) {}

  bool next(Element& element) override {
    if (!reader_.next(fields_)) return false;
    LOCKSTEP_CHECK_DATA(fields_.size() == columns_->size(),
                        "[csv] the file must have a column for each field of the element: file=\"", path_,
                        "\", line=", reader_.line(), ", columns=", fields_.size(), ", fields=", columns_->size(),
                        "; choose columns with CsvOptions::select_columns");
    element.clear();
    for (size_t i = 0; i < fields_.size(); ++i) element.leaves.push_back(leaf(i));
    return true;
  }

  int64_t skip(int64_t count) override { return reader_.skip(count); }

 private:
  Leaf leaf(size_t index) const {
    const CsvColumn& column = (*columns_)[index];
    if (fields_[index].empty() && column.if_empty) return *column.if_empty;
    if (!column.dtype) return Bytes(fields_[index]);
    switch (*column.dtype) {
      case at::kInt:
        return number_of(reader_.number<int32_t>(fields_, index));
      case at::kLong:
        return number_of(reader_.number<int64_t>(fields_, index));
      case at::kFloat:
        return number_of(reader_.number<float>(fields_, index));
      default:
        return number_of(reader_.number<double>(fields_, index));
    }
  }

  std::string path_;
  CsvReader reader_;
  Columns columns_;
  std::vector<std::string> fields_;
};

}  // namespace

NodePtr make_csv(const FileNames& files, std::vector<CsvColumn> columns, ElementSpec spec, CsvOptions options) {
  auto shared = std::make_shared<const std::vector<CsvColumn>>(std::move(columns));
  auto open = [shared, options = std::move(options)](const std::string& path) -> std::unique_ptr<NodeIterator> {
    return std::make_unique<CsvIterator>(path, shared, options);
  };
  return make_reader(node_of(files), FileFormat{"csv", std::move(open), std::move(spec)});
}

}  // namespace lockstep::data::detail
