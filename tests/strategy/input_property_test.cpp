// Over a grid of batch sizes, replicas, workers and numbers of elements: every element is delivered exactly once, in
// pieces of the sizes that TensorFlow's tables give, and all workers end at the same step.

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/data/rewrites/batch_sizes.h"
#include "lockstep/data/rewrites/worker_pipeline.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/sources/reader.h"
#include "lockstep/data/transforms.h"
#include "lockstep/strategy/input/step_reader.h"

namespace lockstep {
namespace {

using data::AutoShardPolicy;
using data::NodePtr;
using data::detail::InputWorker;

using Ids = std::vector<int64_t>;
/// sizes[step][worker * replicas + replica]
using Sizes = std::vector<Ids>;

struct Point {
  int64_t batch;
  int64_t replicas;
  int64_t workers;
  int64_t elements;

  InputWorker worker(int64_t index) const { return {workers, index, replicas}; }
  int64_t num_replicas() const { return workers * replicas; }
};

std::ostream& operator<<(std::ostream& out, const Point& point) {
  return out << "batch " << point.batch << ", " << point.replicas << " replicas on each of " << point.workers
             << " workers, " << point.elements << " elements";
}

/// What all workers read together.
struct Delivered {
  Sizes sizes;
  /// How often each id was delivered.
  Ids times;
};

/// Reads a dataset on all workers in one process, until none of them has data.
Delivered deliver(const NodePtr& dataset, const Point& point) {
  const std::vector<c10::Device> devices(point.replicas, c10::Device(c10::kCPU));
  std::vector<detail::StepReader> readers;
  std::vector<detail::EmptyBatches> empty_batches;
  for (int64_t index = 0; index < point.workers; ++index) {
    const NodePtr node = data::detail::worker_pipeline(dataset, point.worker(index)).node;
    readers.emplace_back(detail::InputPipeline{node, devices}, data::Iteration{});
    empty_batches.emplace_back(node, devices);
  }
  Delivered delivered{.sizes = {}, .times = Ids(point.elements)};
  while (true) {
    std::vector<detail::Step> steps(point.workers);
    for (int64_t w = 0; w < point.workers; ++w) readers[w].read(steps[w]);
    if (std::none_of(steps.begin(), steps.end(), [](const auto& step) { return step.has_data(); })) return delivered;
    Ids sizes;
    for (int64_t w = 0; w < point.workers; ++w) {
      empty_batches[w].fill(steps[w]);
      for (const auto& element : steps[w].elements) {
        const at::Tensor ids = data::detail::to_tensor(element->leaves[0]);
        sizes.push_back(ids.size(0));
        for (int64_t i = 0; i < ids.size(0); ++i) ++delivered.times[ids.data_ptr<int64_t>()[i]];
      }
    }
    delivered.sizes.push_back(std::move(sizes));
  }
}

/// Each batch by itself, in equal pieces; piece j goes to worker j modulo the number of workers.
Sizes sizes_of_even_split(const Point& point) {
  Sizes sizes;
  for (int64_t start = 0; start < point.elements; start += point.batch) {
    const int64_t rows = std::min(point.batch, point.elements - start);
    const int64_t largest = (rows + point.num_replicas() - 1) / point.num_replicas();
    Ids step(point.num_replicas());
    for (int64_t piece = 0; piece < point.num_replicas(); ++piece) {
      const int64_t owner = (piece % point.workers) * point.replicas + piece / point.workers;
      step[owner] = std::clamp(rows - piece * largest, int64_t{0}, largest);
    }
    sizes.push_back(std::move(step));
  }
  return sizes;
}

/// The pieces that a worker divides `rows` rows of its own into. There may be pieces of size 0 after the last row.
Ids pieces_of_worker(const Point& point, int64_t index, int64_t rows) {
  const Ids table = data::detail::batch_sizes_for_worker(point.batch, point.worker(index));
  Ids pieces;
  for (size_t turn = 0; rows > 0 || table[turn % table.size()] == 0; ++turn) {
    pieces.push_back(std::min(rows, table[turn % table.size()]));
    rows -= pieces.back();
  }
  return pieces;
}

/// Each worker divides its own rows. Workers that have none left get nothing until all have ended.
Sizes sizes_of_own_rows(const Point& point, const Ids& rows) {
  std::vector<Ids> pieces;
  size_t most = 0;
  for (int64_t index = 0; index < point.workers; ++index) {
    pieces.push_back(pieces_of_worker(point, index, rows[index]));
    most = std::max(most, pieces.back().size());
  }
  Sizes sizes;
  for (size_t start = 0; start < most; start += point.replicas) {
    Ids step;
    for (const Ids& own : pieces) {
      for (size_t i = start; i < start + point.replicas; ++i) step.push_back(i < own.size() ? own[i] : 0);
    }
    sizes.push_back(std::move(step));
  }
  return sizes;
}

/// Calls `check` for every point of the grid; in slow builds for every LOCKSTEP_GRID_STRIDE-th point.
void for_each_point(int64_t max_workers, const std::function<void(const Point&)>& check) {
  int64_t number = 0;
  for (int64_t workers = 1; workers <= max_workers; ++workers) {
    for (int64_t replicas = 1; replicas <= 5; ++replicas) {
      for (int64_t batch = 1; batch <= 17; ++batch) {
        for (int64_t elements = 0; elements <= 40; ++elements) {
          if (number++ % LOCKSTEP_GRID_STRIDE == 0) check({batch, replicas, workers, elements});
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

NodePtr batches(NodePtr elements, const Point& point, AutoShardPolicy policy) {
  return data::detail::make_options(data::detail::make_batch(std::move(elements), point.batch, {}),
                                    {.auto_shard_policy = policy});
}

/// The sizes for a single replica: whole batches.
Sizes sizes_of_batches(const Point& point) {
  Sizes sizes;
  for (int64_t start = 0; start < point.elements; start += point.batch) {
    sizes.push_back({std::min(point.batch, point.elements - start)});
  }
  return sizes;
}

TEST(InputProperty, WorkersShareElements) {
  for_each_point(3, [&](const Point& point) {
    // Both policies give the same result for a range, so each is tested on half of the grid.
    const auto policy = (point.batch + point.elements) % 2 == 0 ? AutoShardPolicy::Auto : AutoShardPolicy::Data;
    const auto delivered = deliver(batches(data::detail::make_range(0, point.elements, 1), point, policy), point);
    EXPECT_EQ(delivered.times, Ids(point.elements, 1)) << point;
    EXPECT_EQ(delivered.sizes, sizes_of_even_split(point)) << point;
  });
}

TEST(InputProperty, OffOnOneWorkerIsCutBySizes) {
  for_each_point(1, [&](const Point& point) {
    const NodePtr elements = data::detail::make_range(0, point.elements, 1);
    const auto delivered = deliver(batches(elements, point, AutoShardPolicy::Off), point);
    EXPECT_EQ(delivered.times, Ids(point.elements, 1)) << point;
    const Sizes expected = point.replicas == 1 ? sizes_of_batches(point) : sizes_of_own_rows(point, {point.elements});
    EXPECT_EQ(delivered.sizes, expected) << point;
  });
}

TEST(InputProperty, OffOnSeveralWorkersGivesEverythingToEach) {
  for_each_point(3, [&](const Point& point) {
    if (point.workers == 1) return;
    const NodePtr elements = data::detail::make_range(0, point.elements, 1);
    const auto delivered = deliver(batches(elements, point, AutoShardPolicy::Off), point);
    EXPECT_EQ(delivered.times, Ids(point.elements, point.workers)) << point;
    EXPECT_EQ(delivered.sizes, sizes_of_own_rows(point, Ids(point.workers, point.elements))) << point;
  });
}

TEST(InputProperty, HintShardsWhereItStands) {
  for_each_point(3, [&](const Point& point) {
    if (point.num_replicas() == 1 || point.elements < point.workers) return;
    NodePtr elements = data::detail::make_range(0, point.elements, 1);
    elements = data::detail::make_shard(elements, data::kShardHint, data::kShardHint);
    const auto delivered = deliver(batches(elements, point, AutoShardPolicy::Hint), point);
    EXPECT_EQ(delivered.times, Ids(point.elements, 1)) << point;
    Ids rows;
    for (int64_t w = 0; w < point.workers; ++w)
      rows.push_back((point.elements - w + point.workers - 1) / point.workers);
    EXPECT_EQ(delivered.sizes, sizes_of_own_rows(point, rows)) << point;
  });
}

/// Files whose names say what is in them: "5 3" has the ids 5, 6 and 7.
class NumbersOfFile final : public data::NodeIterator {
 public:
  explicit NumbersOfFile(const std::string& name) {
    const int64_t first = std::stoll(name);
    numbers_ = data::detail::make_range(first, first + std::stoll(name.substr(name.find(' '))), 1)->iterator({});
  }
  bool next(data::Element& element) override { return numbers_->next(element); }

 private:
  std::unique_ptr<data::NodeIterator> numbers_;
};

NodePtr files_of(const Ids& sizes) {
  std::vector<std::string> names;
  int64_t first = 0;
  for (const int64_t size : sizes) {
    names.push_back(std::to_string(first) + " " + std::to_string(size));
    first += size;
  }
  return data::detail::make_reader(
      data::detail::node_of(data::from_vector(names)),
      {.name = "numbers_of_files",
       .open = [](const std::string& name) { return std::make_unique<NumbersOfFile>(name); },
       .spec = data::detail::static_spec<int64_t>()});
}

TEST(InputProperty, WorkersShareFiles) {
  const std::vector<Ids> layouts{{3, 2, 4, 1}, {0, 5, 0, 7}, {1, 1, 1}, {20, 3, 8, 8, 1}, {0, 0, 0}};
  for (const Ids& files : layouts) {
    for (const auto policy : {AutoShardPolicy::Auto, AutoShardPolicy::File}) {
      for_each_point(3, [&](Point point) {
        if (point.elements > 0 || point.num_replicas() == 1) return;
        Ids rows(point.workers);
        for (size_t i = 0; i < files.size(); ++i) {
          rows[i % point.workers] += files[i];
          point.elements += files[i];
        }
        const auto delivered = deliver(batches(files_of(files), point, policy), point);
        EXPECT_EQ(delivered.times, Ids(point.elements, 1)) << point;
        EXPECT_EQ(delivered.sizes, sizes_of_own_rows(point, rows)) << point;
      });
    }
  }
}

TEST(InputProperty, SkippedStepsAreThoseThatWouldHaveBeenRead) {
  for_each_point(3, [&](const Point& point) {
    if (point.elements % 7 != 3) return;
    for (const auto policy : {AutoShardPolicy::Data, AutoShardPolicy::Off}) {
      const NodePtr dataset = batches(data::detail::make_range(0, point.elements, 1), point, policy);
      const NodePtr node = data::detail::worker_pipeline(dataset, point.worker(point.workers - 1)).node;
      const detail::InputPipeline pipeline{node, std::vector<c10::Device>(point.replicas, c10::Device(c10::kCPU))};
      detail::StepReader reader(pipeline, {});
      detail::StepReader skipping(pipeline, {});
      detail::Step first;
      reader.read(first);
      reader.read(first);
      EXPECT_LE(skipping.skip(2), 2) << point;
      for (int step = 0; step < 3; ++step) {
        detail::Step read;
        detail::Step after_skip;
        reader.read(read);
        skipping.read(after_skip);
        for (int64_t r = 0; r < point.replicas; ++r) {
          ASSERT_EQ(read.elements[r].has_value(), after_skip.elements[r].has_value()) << point;
          if (!read.elements[r]) continue;
          const at::Tensor expected = data::detail::to_tensor(read.elements[r]->leaves[0]);
          ASSERT_TRUE(expected.equal(data::detail::to_tensor(after_skip.elements[r]->leaves[0]))) << point;
        }
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
