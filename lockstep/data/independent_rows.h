#pragma once

#include "lockstep/api.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

namespace detail {
LOCKSTEP_API NodePtr make_independent_rows(NodePtr mapped);
/// Internal: whether a node is the statement that `independent_rows` makes.
bool states_independent_rows(const Node& node);
}  // namespace detail

/// States of a `map` over batches that its function makes each row of the result from the same row of its batch, and
/// draws no random numbers. `distribute_dataset` with AutoShardPolicy::Data then divides the batches before it calls
/// the function, so that each worker makes only the rows that its replicas use.
///
/// ```
/// auto rows = data::range(files.size()).shuffle(files.size()).batch(32);
/// auto images = data::independent_rows(rows.map(decode_files, {.num_threads = 8}))
///                   .with_options({.auto_shard_policy = data::AutoShardPolicy::Data});
/// ```
///
/// It must be followed by options and prefetch alone, else a warning says that it has no effect. Where the function
/// throws, only the workers with rows of that batch have the error: end the training, or let the function return a row
/// for each row. `mapped` must have `MapOptions::ordered`.
///
/// Elements are those of `mapped`. The function is also called with batches of no rows. Throws c10::ValueError where
/// `mapped` is not the result of `map`.
template <class T>
Dataset<T> independent_rows(const Dataset<T>& mapped) {
  return Dataset<T>(detail::make_independent_rows(detail::node_of(mapped)));
}

}  // namespace lockstep::data
