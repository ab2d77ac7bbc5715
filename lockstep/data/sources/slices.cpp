#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/sources.h"

namespace lockstep::data::detail {
namespace {

/// One tensor or list whose rows are the elements.
struct Column {
  explicit Column(const Leaf& leaf) {
    if (const auto* leaves = leaf.as<LeafList>()) {
      list = leaves->leaves;
      size = static_cast<int64_t>(list->size());
      return;
    }
    const at::Tensor tensor = to_tensor(leaf);
    LOCKSTEP_CHECK_VALUE(tensor.dim() > 0, "[from_tensor_slices] every tensor must have at least one dimension: found ",
                         describe(leaf), "; use from_tensors for a single element");
    rows.emplace(tensor.device().is_cpu() ? tensor.contiguous() : tensor);
    size = rows->size();
  }

  Leaf operator[](int64_t index) const { return rows ? (*rows)[index] : (*list)[index]; }

  std::optional<RowsOf> rows;
  std::shared_ptr<const std::vector<Leaf>> list;
  int64_t size = 0;
};

struct Table {
  std::vector<Column> columns;
  std::shared_ptr<const Layout> layout;
  int64_t size = 0;
};

class SlicesIterator final : public NodeIterator {
 public:
  explicit SlicesIterator(std::shared_ptr<const Table> table) : table_(std::move(table)) {}

  bool next(Element& element) override {
    if (next_ == table_->size) return false;
    element.clear();
    for (const Column& column : table_->columns) element.leaves.push_back(column[next_]);
    element.layout = table_->layout;
    ++next_;
    return true;
  }

  int64_t skip(int64_t count) override {
    const int64_t skipped = std::min(count, table_->size - next_);
    next_ += skipped;
    return skipped;
  }

 private:
  std::shared_ptr<const Table> table_;
  int64_t next_ = 0;
};

class SlicesNode final : public Node {
 public:
  SlicesNode(std::shared_ptr<const Table> table, ElementSpec spec)
      : Node({}), table_(std::move(table)), spec_(std::move(spec)) {}

  std::string name() const override { return c10::str("from_tensor_slices(", table_->size, ")"); }
  Role role() const override { return Role::Source; }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return shared_from_this(); }
  std::unique_ptr<NodeIterator> iterator(const Iteration&) const override {
    return std::make_unique<SlicesIterator>(table_);
  }
  ElementSpec spec() const override { return spec_; }
  Cardinality cardinality() const override { return Cardinality::exactly(table_->size); }

 private:
  std::shared_ptr<const Table> table_;
  ElementSpec spec_;
};

}  // namespace

NodePtr make_slices(Element batch) {
  LOCKSTEP_CHECK_VALUE(!batch.leaves.empty(), "[from_tensor_slices] there must be at least one tensor");
  auto table = std::make_shared<Table>();
  for (const Leaf& leaf : batch.leaves) table->columns.emplace_back(leaf);
  table->layout = batch.layout;
  table->size = table->columns.front().size;
  for (const Column& column : table->columns) {
    LOCKSTEP_CHECK_VALUE(column.size == table->size,
                         "[from_tensor_slices] all tensors must have the same number of rows: found ", table->size,
                         " and ", column.size);
  }
  ElementSpec spec = ElementSpec::of(batch).map_leaves([](LeafSpec leaf) {
    if (leaf.kind == LeafSpec::Kind::List) leaf.kind = LeafSpec::Kind::Bytes;
    leaf.shape = leaf.shape.without_leading();
    return leaf;
  });
  return make_node<SlicesNode>(std::move(table), std::move(spec));
}

}  // namespace lockstep::data::detail
