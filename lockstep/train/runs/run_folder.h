#pragma once

#include <memory>
#include <string>

#include "lockstep/api.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/runs/run_folder_options.h"

namespace lockstep::callbacks {

/// Describes a training in a folder, so that it can be looked at, compared and repeated. `lockstep runs` and `lockstep
/// report` read it.
///
///     run.json            how the program was called, on which strategy, with which versions; how it ended
///     metrics.jsonl       a line for each epoch: the logs, those included that earlier callbacks have added; a
///                         log with the name of another member ("step") is "log_step"
///     metrics.csv         the same logs as a table
///     steps.jsonl         a line for about each second: step, examples, loss, learning rate; for each worker the
///                         resident memory of its process at that moment; for each replica the seconds of each part
///                         of the steps and, on a GPU, the most that LibTorch's allocator had in use in the interval,
///                         from LibTorch 2.9 on; null elsewhere
///     run.lock            held while a training runs; it stays
///     git.diff            how the sources differ from the commit, where they do and it is at most 1 MiB
///     collectives.jsonl   the last collectives, at the end; `lockstep doctor` reads it
///     events.out.tfevents.*, validation/events.out.tfevents.*    the same numbers for TensorBoard
///
/// A training that goes on from a checkpoint goes on in its folder: lines of steps and epochs that are done again are
/// removed, and run.json keeps the description of the first start, with a list of all starts. A training that begins
/// anew moves what is there to a folder `before` (`before-1`, ...) below. Two trainings in one folder at a time are a
/// ContextError of the second one. Lines that cannot be written are left out; the training goes on. Numbers that are
/// not finite are the texts "NaN", "Infinity", "-Infinity". Values of environment variables are written where their
/// names say that they configure lockstep, LibTorch or a launcher, never those of secrets. One worker writes; all
/// workers have the callback.
///
/// ValueError where the configuration is no JSON object.
LOCKSTEP_API std::shared_ptr<Callback> run_folder(const std::string& path, const RunFolderOptions& options = {});

}  // namespace lockstep::callbacks
